#!/bin/bash
# The same without torchrun: srun starts each rank, and binds it to its own cores.
#
#     sbatch course_data/slurm/train_ranks.sh my_training.py ARGUMENTS
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4     # one task per GPU; each task is a rank
#SBATCH --gpus-per-node=4       # each task sees all four, and selects one by LOCAL_RANK
#SBATCH --cpus-per-task=8       # cores of each rank, for its main process and at most 7 workers
#SBATCH --hint=nomultithread    # count cores, not the two threads of each
#SBATCH --time=04:00:00
set -euo pipefail

# With --gpus-per-task=1, every task would see only one GPU, number 0. Then set_device(LOCAL_RANK)
# fails in all tasks but the first, and the GPUs cannot access each other's memory.

read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # the first node
export MASTER_ADDR MASTER_PORT="${MASTER_PORT:-29500}"

# The hint binds each rank to its cores. With --cpu-bind=cores, srun would silently ignore the hint.
# verbose: the log lists the cores of each rank. len(os.sched_getaffinity(0)) counts them, but
# os.cpu_count() returns the number for the node. Slurm selects cores that are close together, but not
# always close to the GPU. `nvidia-smi topo -m` shows the cores close to each GPU.
srun --ntasks-per-node="$SLURM_NTASKS_PER_NODE" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    --hint=nomultithread --cpu-bind=verbose \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
             export LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE
             exec python "$@"' rank "$@"
