"""A storage that counts what is asked of it, and takes no time: for checks and for trials."""

from __future__ import annotations

import math
import os

from course_utils.hardware.storage.filesystem import SlowFileSystem, slow_storage
from course_utils.hardware.storage.presets import StoragePreset

_FREE = StoragePreset(
    name="counting storage",
    open_ms=0,
    opens_per_s=math.inf,
    request_ms=0,
    requests_at_once=1,
    mb_s=math.inf,
    stream_mb_s=math.inf,
    readahead=False,
    cache_mb=0,
    sources={},
)


def counting_storage(root: str | os.PathLike[str]) -> SlowFileSystem:
    """Return the local files under `root` as a storage without page cache that only counts.

    Raises:
        FileNotFoundError: `root` is no folder.
    """
    return slow_storage(root, _FREE)
