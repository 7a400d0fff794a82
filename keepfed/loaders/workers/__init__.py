"""What workers need: how they start, what they open, draw, share and weigh."""

from keepfed.loaders.workers.memory import (
    DEFAULT_PREFETCH,
    ShmBudget,
    nbytes,
    shm_budget,
    shm_free,
    unique_mb,
)
from keepfed.loaders.workers.worker import (
    LazyFile,
    PackedStrings,
    SharedEpoch,
    worker_init,
    worker_rng,
)
