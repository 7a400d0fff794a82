"""Tools for workers: set-up, random numbers, files, strings, shared epochs and memory use."""

from keepfed.loaders.workers.memory import (
    DEFAULT_PREFETCH,
    ShmBudget,
    shm_budget,
    shm_free,
)
from keepfed.loaders.workers.worker import (
    LazyFile,
    PackedStrings,
    SharedEpoch,
    worker_init,
    worker_rng,
)
