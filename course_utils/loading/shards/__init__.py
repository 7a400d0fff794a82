"""Samples in tar shards: write them, read them from anywhere, stream each exactly once."""

from course_utils.loading.shards.read import stream_shards
from course_utils.loading.shards.samples import decode_event, event_samples
from course_utils.loading.shards.write import url_of, write_shards
