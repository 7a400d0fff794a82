"""Stage data to /dev/shm: `stage` copies once, for all jobs of a machine, and removes.

`staged_copy` makes a copy so that a killed run leaves nothing of it; `staged_source` looks at what
is copied. Nothing here imports torch, so that a job is staged for in no time.
"""

from keepfed.loaders.staging.stage import stage_to_shm, staged_copies, unstage
