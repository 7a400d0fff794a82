"""Keep data near: samples in shared memory, and whole data sets staged to /dev/shm."""

from course_utils.loading.cache.sample_cache import (
    SampleCache,
)
from course_utils.loading.cache.staging import (
    stage_to_shm,
)

__all__ = [
    "SampleCache",
    "stage_to_shm",
]
