"""Streams: who serves which part, in what order, and how well that mixes."""

from course_utils.loading.contract import Place, epoch_rng
from course_utils.loading.stream.quality import draw_together, mixing
from course_utils.loading.stream.shuffling import (
    BlockSampler,
    batched,
    blocks,
    buffer_shuffle,
    interleave,
    shuffled,
    split,
)
from course_utils.loading.stream.streams import EventShards, ShardedStream
