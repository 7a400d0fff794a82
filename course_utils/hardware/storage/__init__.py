"""Emulated slow storage over local files, shared by all processes that use it."""

from course_utils.hardware.clock import VirtualClock
from course_utils.hardware.storage.filesystem import SlowFileSystem, counting_storage, slow_storage
from course_utils.hardware.storage.page_cache import BLOCK, UNIT
from course_utils.hardware.storage.presets import PRESETS, UNLIMITED, StoragePreset, storage_preset
