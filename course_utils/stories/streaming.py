"""Train on a sorted file with several streams, and compare time and shuffling (notebook 05).

run = train_on(data_path("events", "S"), interleave=16, chunk=2, buffer=1)
Timeline(run.trace)
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import pad_collate
from keepfed.measure.trace import Trace, record

BATCH, STEPS = 32, 16


@dataclass(frozen=True)
class StreamRun:
    """Some steps on a sorted file, and the contents of their batches."""

    trace: Trace
    storage: SlowFileSystem  # with its counters
    means: list[float]  # mean energy of each batch, log10 GeV
    energy: NDArray[np.float32]  # energies of all events of the file, log10 GeV

    @property
    def total_s(self) -> float:
        """Duration of the steps in seconds."""
        return float(self.trace.summary().total_s)

    @property
    def ideal(self) -> float:
        """Standard deviation of the batch means in a full shuffle."""
        return float(self.energy.std() / BATCH**0.5)

    @property
    def scatter(self) -> float:
        """Standard deviation of the batch means, in units of `ideal`."""
        return float(np.std(self.means)) / self.ideal


def train_on(folder: str | Path, *, interleave: int, chunk: int, buffer: int) -> StreamRun:
    """Run 16 steps of 20 ms on batches of 32 events from an emulated busy Lustre.

    Args:
        folder: events as make_events writes them.
        interleave: number of shards (of 20) that are read alternately.
        chunk: number of events per request.
        buffer: size of the shuffle buffer in events.
    """
    storage = slow_storage(folder, "busy Lustre", cache_mb=0)
    stream = EventShards(
        folder, shards=20, interleave=interleave, chunk=chunk, buffer=buffer, fs=storage
    )
    gpu, means = get_accelerator(step_ms=20), []
    loader = DataLoader(stream, batch_size=BATCH, collate_fn=pad_collate)
    with record() as trace:
        for batch in islice(trace.batches(loader, ids="event_id"), STEPS):
            gpu.step(gpu.upload(batch)).item()
            means.append(float(batch["energy"].mean()))
    return StreamRun(trace, storage, means, stream.events.labels.energy)
