"""Streams: who serves which part, in what order, and how well that mixes."""

from course_utils.loading.stream.quality import draw_together, mixing
from course_utils.loading.stream.shuffling import (
    BlockSampler,
    Place,
    batched,
    blocks,
    buffer_shuffle,
    epoch_rng,
    interleave,
    shuffled,
    split,
)
from course_utils.loading.stream.streams import EventShards, ShardedStream
