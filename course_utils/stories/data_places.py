"""Measure the time of an epoch from each place that can store data (notebook 07).

print(warm_s(folder), emulated_s(folder, "NFS"))
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from course_utils.hardware.storage import VirtualClock, slow_storage
from course_utils.loading.events import Events, MemmapEvents
from keepfed.loaders.staging import stage_to_shm
from keepfed.loaders.stream import batched


def epoch_s(events: Any, clock: Callable[[], int] = time.perf_counter_ns) -> float:
    """Return the seconds to read all samples once, shuffled, 64 at a time."""
    order, start = np.random.default_rng(0).permutation(len(events)), clock()
    for batch in batched(order.tolist(), 64):
        events.__getitems__(batch)
    return (clock() - start) / 1e9


def emulated_s(folder: Path, preset: str) -> float:
    """Return the emulated seconds of an epoch of events, computed without waiting."""
    storage = slow_storage(folder, preset, cache_mb=0)
    return epoch_s(MemmapEvents(folder, fs=storage), VirtualClock(storage))


def warm_s(*folders: Path) -> list[float]:
    """Return the best of seven epochs from each folder in seconds, measured alternately."""
    each = [MemmapEvents(folder) for folder in folders]
    return list(np.min([[epoch_s(events) for events in each] for _ in range(7)], axis=0))


def break_even(preset: str, kind: type[Events], folder: Path, part: str) -> tuple[float, float]:
    """Stage a part of the events from an emulated storage.

    Returns:
        Emulated seconds of waiting for the storage: to stage, and in a cold epoch. An epoch from
        the copy does not wait. All epochs need the same Python time, so it is left out.
    """
    storage = slow_storage(folder, preset, cache_mb=0)
    clock = VirtualClock(storage)
    cold, start = epoch_s(kind(folder, fs=storage), clock), clock()
    with tempfile.TemporaryDirectory() as place:
        stage_to_shm(folder / part, fs=storage, to=place, progress=False)
        return (clock() - start) / 1e9, cold
