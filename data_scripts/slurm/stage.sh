#!/bin/bash
# Copy data once into the memory of each node of a job. Run it inside the job, before training:
#
#     data_scripts/slurm/stage.sh /lustre/events-M
#
# The copy counts as memory of the job, so add its size to --mem. On some clusters Slurm gives each
# job its own /dev/shm and empties it at the end (job_container/tmpfs). On the others, the end of a
# job does not free the memory. End with `data_scripts/slurm/stage.sh --remove FOLDER`.
# Your own script may call stage_to_shm(FOLDER) instead. Then one rank per node copies, and the other
# ranks wait for it.
set -euo pipefail

# one task per node, even if the job has more tasks; copying needs one core
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task=1 \
    keepfed stage "$@"
