#!/bin/bash
# Copy data once to the memory of each node of the job. Run it inside a job, before the training:
#
#     course_data/slurm/stage.sh /lustre/events-M
#
# A job that is over takes no memory along: end with `course_data/slurm/stage.sh --remove FOLDER`.
# A script of your own may call stage_to_shm(FOLDER) instead. Of all ranks on a node one copies then,
# and the others wait for it.
set -euo pipefail

# one task per node, whatever the job has asked for; a copy needs one core
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpus-per-task=1 \
    python -m course_utils.command.cli stage "$@"
