"""Keep data near: samples in shared memory, and whole data sets staged to /dev/shm.

`staging` is the front: copy once, use everywhere, remove. `staged_copy` makes a copy so that a
killed run leaves nothing of it; `staged_source` looks at what is copied.
"""

from course_utils.loading.cache.sample_cache import SampleCache
from course_utils.loading.cache.staging import stage_to_shm, unstage
