"""Copy data to /dev/shm once, for all jobs that share it.

`stage` holds the public functions, `staged_copy` creates and deletes one copy atomically, and
`staged_source` lists the files of a source.
Nothing here imports torch, so that `keepfed stage` starts quickly.
"""

from keepfed.loaders.staging.stage import stage_to_shm, staged_copies
