"""Streams: who serves which part, and in what order."""

from keepfed.loaders.contract import Place, epoch_rng
from keepfed.loaders.stream.shuffling import (
    BlockSampler,
    batched,
    blocks,
    buffer_shuffle,
    interleave,
    shuffled,
    split,
)
from keepfed.loaders.stream.streams import ShardedStream
