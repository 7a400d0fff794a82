"""Compare ways to read ROOT files over a network: requests, mixing, memory, time (notebook 14)."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from course_utils.hardware.storage import SlowFileSystem
from course_utils.loading.quality import Mixing, mixing


@dataclass(frozen=True)
class ReadEpoch:
    """One epoch of reading."""

    requests: float
    seconds: float  # waits and CPU time of one process
    mixing: Mixing


def read_epoch(
    storage: SlowFileSystem,
    loader: Iterable[Any],
    kinds: ArrayLike,
    *,
    memory: int,
    batches: int | None = None,
) -> ReadEpoch:
    """Read an epoch, count requests and time, and measure how well it mixes `kinds`.

    With `batches`, a map-style loader reads only as many. Requests and time are scaled up, and the
    mixing is that of the sampler.
    """
    storage.reset_counters()
    start = storage.clock()
    taken = [np.asarray(batch["index"]) for batch in islice(loader, batches)]
    seconds, requests, part = (storage.clock() - start) / 1e9, storage.counters().requests, 1.0
    if batches:
        taken = [np.asarray(batch) for batch in getattr(loader, "batch_sampler", ())]
        part = len(taken) / batches
    return ReadEpoch(part * requests, part * seconds, mixing(taken, kinds, memory=memory))
