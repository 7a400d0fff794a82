#!/bin/bash
# The same without torchrun: srun starts each rank, and binds it to its own cores.
#
#     sbatch data_scripts/slurm/train_ranks.sh my_training.py ARGUMENTS
#
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4     # one task per GPU; each task is a rank
#SBATCH --gpus-per-node=4       # each task sees all four, and selects one by LOCAL_RANK
#SBATCH --cpus-per-task=8       # cores of each rank, for its main process and at most 7 workers
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

# With --gpus-per-task=1, every task would see only one GPU, number 0. Then set_device(LOCAL_RANK)
# fails in all tasks but the first, and the GPUs cannot access each other's memory.

read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST") # the first node
# Each job has a different port. Otherwise a second job on this node stops with EADDRINUSE.
export MASTER_ADDR MASTER_PORT="${MASTER_PORT:-$((29500 + SLURM_JOB_ID % 1000))}"

# The hint binds each rank to its cores. With --cpu-bind=cores, srun would silently ignore the hint.
# --cpu-bind=verbose selects no binding, so it is allowed. The log then lists the cores of each rank.
# len(os.sched_getaffinity(0)) returns their number, but os.cpu_count() returns the number for the
# node. Slurm selects cores that are close together, but not always close to the GPU.
# `nvidia-smi topo -m` shows the cores close to each GPU.
# --kill-on-bad-exit: if one rank dies, the others would wait for it until their time limit.
srun --ntasks-per-node="$SLURM_NTASKS_PER_NODE" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
    --hint=nomultithread --cpu-bind=verbose --kill-on-bad-exit=1 \
    bash -c 'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
             export LOCAL_WORLD_SIZE=$SLURM_NTASKS_PER_NODE
             exec python "$@"' rank "$@" &
training=$!

# The training gets no signal, which would end Python. It loses what it has
# learned since its last checkpoint. bash runs a trap only after the foreground command has ended.
# Therefore srun runs in the background, and the script waits for it again after a signal.
code=0
wait "$training" || code=$?
while kill -0 "$training" 2>/dev/null; do
    code=0
    wait "$training" || code=$?
done
exit "$code"
