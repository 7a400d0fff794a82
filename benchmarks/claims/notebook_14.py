"""Count or measure the claims of notebook 14."""

from itertools import chain

import numpy as np

from keepfed.loaders.stream import batched, blocks, buffer_shuffle, shuffled

CLUSTERS, SIZE, BATCH, HELD = 800, 100, 64, 16


def clusters_that_a_buffer_is_worth() -> float:
    """Return how many clusters mix as well as a buffer, per cluster that fits into it."""
    ratios = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        clusters = shuffled(blocks(CLUSTERS * SIZE, SIZE), rng)
        order = buffer_shuffle(chain(*clusters), HELD * SIZE, rng)
        share = [np.mean(np.array(batch) < CLUSTERS * SIZE // 4) for batch in batched(order, BATCH)]
        ratios.append(np.var(share) / (0.25 * 0.75 / BATCH))
    return BATCH / (float(np.mean(ratios)) - 1) / HELD
