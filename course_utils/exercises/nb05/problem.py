"""Given code of exercise 05.2: the effect of three numbers of a shuffle on the batches."""

from dataclasses import replace

import numpy as np

from course_utils.loading.quality import Mixing, mixing
from keepfed.loaders.stream import batched, blocks, buffer_shuffle, interleave, shuffled

EVENTS, SHARDS, BATCH = 20_000, 100, 64
EPOCHS = 20  # the scatter of a single epoch may be half as large, or twice


def try_out(at_once: int, chunk: int, buffer: int) -> Mixing:
    """Stream a sorted file of 20,000 events in 100 shards, and measure how well it is mixed.

    The scatter is the mean of 20 epochs. The co-occurrence is that of the first epoch only, because
    a mean would hide that some events share a batch in each epoch.

    Args:
        at_once: Number of shards that are read in turn.
        chunk: Number of events that are read with one request.
        buffer: Number of events from which the next one is drawn.
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
