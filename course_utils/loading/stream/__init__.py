"""Streams: who serves which part, in what order, and how well that mixes."""

from course_utils.loading.stream.event_shards import (
    EventShards,
)
from course_utils.loading.stream.mixing import (
    mixing,
)
from course_utils.loading.stream.mixing_display import (
    draw_together,
)
from course_utils.loading.stream.sharded import (
    ShardedStream,
)
from course_utils.loading.stream.shuffling import (
    BlockSampler,
    batched,
    blocks,
    buffer_shuffle,
    epoch_rng,
    interleave,
    shuffled,
)
from course_utils.loading.stream.splitting import (
    Place,
    split,
)

__all__ = [
    "BlockSampler",
    "EventShards",
    "Place",
    "ShardedStream",
    "batched",
    "blocks",
    "buffer_shuffle",
    "draw_together",
    "epoch_rng",
    "interleave",
    "mixing",
    "shuffled",
    "split",
]
