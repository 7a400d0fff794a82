#!/bin/bash
# The same without torchrun: srun starts each rank, and binds it to cores of its own.
#
#     sbatch course_data/slurm/train_ranks.sh my_training.py ARGUMENTS
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4     # one task per GPU, which is a rank
#SBATCH --gpus-per-node=4       # all four are seen by each task, and LOCAL_RANK takes its own
#SBATCH --cpus-per-task=8       # of each rank: for its main process and at most 7 workers
#SBATCH --hint=nomultithread    # count cores, not the two threads of each
#SBATCH --time=04:00:00
set -euo pipefail

# With --gpus-per-task=1 every task would see one GPU, called 0: set_device(LOCAL_RANK) then fails
# in all but the first, and the GPUs of a node cannot reach into each other's memory.

read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # the first node
export MASTER_ADDR MASTER_PORT="${MASTER_PORT:-29500}"

# The hint binds each rank to its cores; --cpu-bind=cores would make srun ignore the hint, without a
# word. verbose: the log says which cores each rank has got. They are what len(os.sched_getaffinity(0))
# counts; os.cpu_count() counts those of the whole node. Slurm takes cores near each other, not
# always near the GPU: `nvidia-smi topo -m` shows which are.
srun --ntasks-per-node="$SLURM_NTASKS_PER_NODE" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    --hint=nomultithread --cpu-bind=verbose \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
             export LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE
             exec python "$@"' rank "$@"
