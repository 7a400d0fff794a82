#!/bin/bash
# Convert events on several nodes with Ray, with the parts of a format in parallel:
#
#     sbatch data_scripts/slurm/convert.sh /lustre/events-L npz tar
#
# All nodes must share the file system of the folder. A node that dies only costs time.
#SBATCH --job-name=convert
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1   # Ray starts one worker per core of a node
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G             # memory of a node, for all workers
#SBATCH --time=01:00:00
set -euo pipefail

folder=$1
shift
read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # the first node
port=${RAY_PORT:-$((6379 + SLURM_JOB_ID % 1000))}

# Since Slurm 22.05, srun ignores sbatch's --cpus-per-task. Without it here, a node has one core.
# Each job has a different port. Otherwise a second job on this node stops with EADDRINUSE.
# symmetric-run starts a cluster on all nodes, runs the command on the first, and stops it.
srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --cpu-bind=cores \
    ray symmetric-run --address "$head:$port" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" -- \
    python -m data_scripts.convert_events "$folder" --to "$@" --engine ray
