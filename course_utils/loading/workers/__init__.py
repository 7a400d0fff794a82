"""What workers need: how they start, what they open, draw, share and weigh."""

from course_utils.loading.workers.memory import (
    DEFAULT_PREFETCH,
    ShmBudget,
    nbytes,
    shm_budget,
    shm_free,
    unique_mb,
)
from course_utils.loading.workers.worker import (
    LazyFile,
    PackedStrings,
    SharedEpoch,
    worker_init,
    worker_rng,
)
