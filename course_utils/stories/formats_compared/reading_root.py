"""Compare ways to read ROOT files over a network: requests, mixing, memory, time (notebook 14)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from course_utils.hardware.storage import SlowFileSystem
from course_utils.loading.quality import Mixing, mixing
from course_utils.stories.figures import drawing


@dataclass(frozen=True)
class ReadEpoch:
    """One epoch of reading."""

    requests: float
    seconds: float  # waits and CPU time of one process
    mixing: Mixing

    def __str__(self) -> str:
        return f"{self.requests:,.0f} requests, {self.seconds:,.1f} s\n{self.mixing}"


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


def plot_ways(
    ways: Mapping[str, ReadEpoch], once_s: Mapping[str, float], *, steps_s: float
) -> Figure:
    """Draw mixing against requests, with memory as the area, and total time against epochs.

    Args:
        ways: Epochs by name.
        once_s: Seconds that a way takes before its first epoch.
        steps_s: Seconds of the steps of an epoch, which overlap with reading.
    """
    with drawing(9, 3.4, columns=2) as (figure, (left, right)):
        for (name, way), mark in zip(ways.items(), "osD^v", strict=False):
            size, epochs = 20 + 0.25 * (way.mixing.memory or 0), np.arange(1, 6)
            left.scatter(way.requests, way.mixing.ratio, size, marker=mark, alpha=0.7)
            total = once_s.get(name, 0) + epochs * max(way.seconds, steps_s)
            right.plot(epochs, total, f"{mark}-", label=name, markersize=4)
        left.set_xscale("symlog", linthresh=10)
        left.set(xlim=-2, ylim=0, xlabel="requests in an epoch (area: jets in memory)")
        left.set(ylabel="scatter of the signal share\n(1 = full shuffle)")
        right.set(xlabel="epochs", xticks=epochs, ylabel="seconds in total", yscale="log")
        right.legend()
    return figure
