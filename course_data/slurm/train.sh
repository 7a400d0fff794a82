#!/bin/bash
# Train on all GPUs of several nodes, for as many jobs as it takes:
#
#     sbatch course_data/slurm/train.sh my_training.py ARGUMENTS
#
# my_training.py saves a checkpoint now and then, and begins by loading the last one (notebook 11).
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1     # one torchrun per node; it starts the ranks
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32      # of that one task: 8 per rank, for its main process and its workers
#SBATCH --hint=nomultithread    # count cores, not the two threads of each
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120     # tell this script, and only it, 120 s before the end
#SBATCH --requeue
#SBATCH --open-mode=append      # the next job writes on in the same log
set -euo pipefail

again() {
    echo "The time is nearly up: the job queues again and goes on from the last checkpoint."
    scontrol requeue "$SLURM_JOB_ID" # ends this run too
}
trap again USR1

read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # the first node
# All ranks of a node share the cores of its one task. The system may move them and their workers
# about; if it takes them too far from their GPU, see train_ranks.sh. The hint also binds the task to
# its cores. Do not add --cpu-bind=cores: srun would then ignore the hint, without a word.
srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --hint=nomultithread \
    python -m torch.distributed.run --nnodes="$SLURM_JOB_NUM_NODES" \
    --nproc-per-node="$SLURM_GPUS_ON_NODE" --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d \
    --rdzv-endpoint="$head:${MASTER_PORT:-29500}" "$@" &
training=$!

# bash runs a trap when the command that it waits for is over: so srun is in the background, and
# after a signal it is waited for again
code=0
wait "$training" || code=$?
while kill -0 "$training" 2>/dev/null; do
    code=0
    wait "$training" || code=$?
done
exit "$code"
