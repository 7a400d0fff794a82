"""A slow storage over local files, shared by all processes that use it."""

from course_utils.hardware.storage.counting import (
    counting_storage,
)
from course_utils.hardware.storage.filesystem import (
    SlowFileSystem,
    slow_storage,
)
from course_utils.hardware.storage.page_cache import (
    BLOCK,
    UNIT,
)
from course_utils.hardware.storage.presets import (
    PRESETS,
    StoragePreset,
    storage_preset,
)
from course_utils.hardware.storage.virtual_time import (
    VirtualClock,
)

__all__ = [
    "BLOCK",
    "PRESETS",
    "UNIT",
    "SlowFileSystem",
    "StoragePreset",
    "VirtualClock",
    "counting_storage",
    "slow_storage",
    "storage_preset",
]
