"""Load events from one .npz file each with 2 workers, traced by DFTracer.

    python notebooks/recordings/make_dftracer_loader.py EVENTS TRACES

DFTracer runs on Linux (`pip install dftracer`). EVENTS is a folder with events as npz
(`python -m data_scripts.convert_events`); TRACES, a new folder, gets one .pfw.gz file for each
process.
"""

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("DFTRACER_ENABLE", "1")  # read when dftracer is imported

import torch
from dftracer.python import dft_fn, dftracer
from torch.utils.data import DataLoader, Subset

from course_utils.loading.events import NpzEvents

fetching, training = dft_fn("data_loader"), dft_fn("compute")


class TracedEvents(NpzEvents):
    """Events, each fetched under a name of its own."""

    @fetching.log(name="fetch_event")
    def _read_one(self, index):
        return super()._read_one(index)


class StartTracer:
    """Let a worker write a file of its own."""

    def __init__(self, events: str, traces: str):
        self.events, self.traces = events, traces

    def __call__(self, worker: int) -> None:
        """Be the loader's worker_init_fn."""
        self.tracer = dftracer.initialize_log(f"{self.traces}/worker{worker}", self.events, -1)


@training.log(name="train")
def train(batch: list) -> None:
    """Wait as long as a small model on a fast GPU would take."""
    time.sleep(0.02)


def main(events: str, traces: str) -> None:
    """Load 96 events in batches of 8."""
    Path(traces).mkdir(parents=True)
    start = StartTracer(str(Path(events).resolve()), str(Path(traces).resolve()))
    tracer = dftracer.initialize_log(f"{start.traces}/main", start.events, -1)
    loader = DataLoader(
        Subset(TracedEvents(events), range(96)),
        batch_size=8,
        num_workers=2,
        collate_fn=list,
        worker_init_fn=start,
    )
    for batch in dft_fn("data_loader").iter(loader, name="DataLoader", iter_name="step"):
        train(batch)
    tracer.finalize()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
