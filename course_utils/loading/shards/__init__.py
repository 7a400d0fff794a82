"""Samples in tar shards: write them, read them from anywhere, stream each exactly once."""

from course_utils.loading.shards.read import stream_shards
from course_utils.loading.shards.samples import (
    decode_event,
    decode_image,
    event_samples,
    image_samples,
)
from course_utils.loading.shards.write import url_of, write_shards
