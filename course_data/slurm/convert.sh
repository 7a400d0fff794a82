#!/bin/bash
# Convert events on several nodes with Ray, the parts of a format side by side:
#
#     sbatch course_data/slurm/convert.sh /lustre/events-L npz tar
#
# The folder has to lie on a file system that all nodes share. A node that dies costs time, nothing else.
#SBATCH --job-name=convert
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1   # Ray starts as many workers on a node as it is given cores
#SBATCH --cpus-per-task=16
#SBATCH --time=01:00:00
set -euo pipefail

folder=$1
shift
read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # the first node

# Since Slurm 22.05 srun forgets the --cpus-per-task of sbatch: without it here, a node has one core.
# symmetric-run makes a cluster of all nodes, runs the command on the first, and ends the cluster.
srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
    ray symmetric-run --address "$head:${RAY_PORT:-6379}" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" -- \
    python -m course_data.convert_events "$folder" --to "$@" --engine ray
