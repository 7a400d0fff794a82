"""What workers need: how they start, what they open, draw, share and weigh."""

from course_utils.loading.workers.lazy_file import (
    LazyFile,
)
from course_utils.loading.workers.memory import (
    Budget,
    in_flight_bytes,
    mb,
    nbytes,
    share_mb,
    shm_free,
    unique_mb,
)
from course_utils.loading.workers.packed import (
    PackedStrings,
)
from course_utils.loading.workers.shm_budget import (
    ShmBudget,
    shm_budget,
)
from course_utils.loading.workers.workers import (
    SharedEpoch,
    worker_init,
    worker_rng,
)

__all__ = [
    "Budget",
    "LazyFile",
    "PackedStrings",
    "SharedEpoch",
    "ShmBudget",
    "in_flight_bytes",
    "mb",
    "nbytes",
    "share_mb",
    "shm_budget",
    "shm_free",
    "unique_mb",
    "worker_init",
    "worker_rng",
]
