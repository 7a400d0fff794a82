#!/bin/bash
# Train on all GPUs of several nodes, in as many jobs as necessary:
#
#     sbatch data_scripts/slurm/train.sh my_training.py ARGUMENTS
#
# my_training.py must save checkpoints regularly, and load the last one at the start (notebook 11).
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1     # one torchrun per node, which starts the ranks
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32      # cores of this task: 8 per rank, for main process and workers
#SBATCH --mem=128G              # memory of a node, for all ranks, workers and files in /dev/shm
#SBATCH --hint=nomultithread    # count cores, not the two threads of each
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120     # send the signal only to this script, 120 s before the end
#SBATCH --requeue
#SBATCH --open-mode=append      # the next job appends to the same log
set -euo pipefail

again() {
    # A training that hangs before its first checkpoint would otherwise be queued again forever.
    if ((${SLURM_RESTART_COUNT:-0} >= ${MAX_RESTARTS:-20})); then
        echo "The limit of $SLURM_RESTART_COUNT restarts is reached. Submit the job again if it makes progress."
        return 0
    fi
    echo "The time limit is near. The job is queued again and will continue from the last checkpoint."
    scontrol requeue "$SLURM_JOB_ID" # ends this run too
}
trap again USR1

read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # the first node
# Each job has a different port. Otherwise a second job on this node stops with EADDRINUSE.
port=${MASTER_PORT:-$((29500 + SLURM_JOB_ID % 1000))}

# All ranks of a node share the cores of one task, so Linux may move them and their workers between
# these cores. If they end up too far from their GPU, see train_ranks.sh. The hint also binds the
# task to its cores. Do not add --cpu-bind=cores, because srun would then silently ignore the hint.
srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --hint=nomultithread \
    --kill-on-bad-exit=1 \
    python -m torch.distributed.run --nnodes="$SLURM_JOB_NUM_NODES" \
    --nproc-per-node="$SLURM_GPUS_ON_NODE" --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d \
    --rdzv-endpoint="$head:$port" "$@" &
training=$!

# The training gets no signal, because torchrun would then end its ranks. It loses what it has
# learned since its last checkpoint. bash runs a trap only after the foreground command has ended.
# Therefore srun runs in the background, and the script waits for it again after a signal.
code=0
wait "$training" || code=$?
while kill -0 "$training" 2>/dev/null; do
    code=0
    wait "$training" || code=$?
done
exit "$code"
