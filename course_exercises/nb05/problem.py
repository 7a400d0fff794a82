"""What exercise 05.2 is about: a stream of shards, and what three numbers do to its batches."""

from dataclasses import replace

import numpy as np

from course_utils.loading.quality import Mixing, mixing
from keepfed.loaders.stream import batched, blocks, buffer_shuffle, interleave, shuffled

EVENTS, SHARDS, BATCH = 20_000, 100, 64
EPOCHS = 20  # a single one may scatter half as much, or twice


def try_out(at_once: int, chunk: int, buffer: int) -> Mixing:
    """Stream a sorted file of 20,000 events in 100 shards, and see how it mixes.

    The scatter is the mean of 20 epochs; who sits with whom is that of the first one, since the
    mean of many would hide that in each some sit together.

    Args:
        at_once: shards that are read in turn.
        chunk: events that are read with one request.
        buffer: events to draw from.
    """
    epochs = [_epoch(at_once, buffer, np.random.default_rng(seed)) for seed in range(EPOCHS)]
    return replace(
        epochs[0],
        std=epochs[0].ideal * float(np.mean([epoch.ratio for epoch in epochs])),
        memory=buffer + at_once * chunk,
    )


def _epoch(at_once: int, buffer: int, rng: np.random.Generator) -> Mixing:
    energy = np.sort(rng.exponential(size=EVENTS))
    shards = shuffled(blocks(EVENTS, EVENTS // SHARDS), rng)
    order = buffer_shuffle(interleave(shards, at_once), buffer, rng)
    return mixing(batched(order, BATCH), energy)
