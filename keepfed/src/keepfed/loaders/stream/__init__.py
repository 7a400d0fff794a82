"""Split streams among ranks and workers, and shuffle them."""

from keepfed.loaders.contract import WorkerSlot, epoch_rng
from keepfed.loaders.stream.shuffling import (
    BlockSampler,
    batched,
    blocks,
    buffer_shuffle,
    interleave,
    shuffled,
    split,
)
from keepfed.loaders.stream.streams import ShardedStream, StreamOptions
