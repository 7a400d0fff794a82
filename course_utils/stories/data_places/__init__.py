"""Measure and draw the time of an epoch from each place that can store data (notebook 07).

print(warm_s(folder), emulated_s(folder, "NFS"))
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from course_utils.hardware.storage import VirtualClock, slow_storage
from course_utils.loading.events import Events, MemmapEvents, NpzEvents
from course_utils.stories.figures import drawing
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


def draw_break_even(folder: Path) -> tuple[Figure, float, float]:
    """Draw when staging pays, for small files on NFS and for one file on Lustre.

    Returns:
        The figure, and the break-even point of both cases in epochs.
    """
    cases = {
        "2,000 files on NFS": break_even("NFS", NpzEvents, folder, "npz"),
        "one file on Lustre": break_even("busy Lustre", MemmapEvents, folder, "npy"),
    }
    paid, epochs = [], np.linspace(0, 3, 50)
    with drawing(9, 2.6, columns=2) as (figure, panels):
        for panel, (name, (stage_s, cold_s)) in zip(panels, cases.items(), strict=True):
            paid.append(stage_s / cold_s)
            panel.plot(epochs, cold_s * epochs, "--", label="from the storage")
            panel.plot(epochs, np.full(50, stage_s), label="staged")
            panel.axvline(paid[-1], color="0.5", ls=":")
            title = f"{name}: pays after {paid[-1]:.2f} epochs"
            panel.set(title=title, xlabel="epochs", xticks=range(4))
        panels[0].set_ylabel("seconds of waiting\nfor the storage (emulated)")
        panels[0].legend()
    return figure, paid[0], paid[1]
