"""Samples in tar shards: written, read from anywhere, and streamed exactly once."""

from course_utils.loading.shards.samples import (
    decode_event,
    event_samples,
    image_samples,
)
from course_utils.loading.shards.stream import (
    stream_shards,
)
from course_utils.loading.shards.write import (
    url_of,
    write_shards,
)

__all__ = [
    "decode_event",
    "event_samples",
    "image_samples",
    "stream_shards",
    "url_of",
    "write_shards",
]
