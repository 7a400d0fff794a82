"""A stream that every worker reads completely, and a stream that the workers share."""

from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from course_utils.hardware.gpu import get_accelerator
from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import Events, NpzEvents, pad_collate
from course_utils.stories.lecture import Finding
from course_utils.stories.lecture.programs.loop import train
from course_utils.teaching.notebook import data_path
from keepfed.formatting import percent
from keepfed.loaders.stream import WorkerSlot, split

EVENTS, BATCH = 192, 16


class Stream(IterableDataset[Any]):
    """A stream of events in order."""

    def __init__(self, events: Events, *, shared: bool):
        """Read `events`; if `shared`, each worker reads its part of them."""
        self.events, self.shared = events, shared

    def __iter__(self) -> Iterator[Any]:
        indices = range(EVENTS)
        for index in split(indices, WorkerSlot.here()) if self.shared else indices:
            yield self.events[index]


def run() -> Finding:
    """Run an epoch without workers, with four workers, and with four that share the stream."""
    folder, gpu = data_path("events", "S"), get_accelerator(step_ms=30)
    events = NpzEvents(folder, fs=slow_storage(folder, "busy Lustre", cache_mb=0))
    ways = {"no workers": (0, False), "four workers": (4, False), "four that share": (4, True)}
    traces, table = {}, [["", "served", "distinct", "served/s", "distinct/s"]]
    for name, (workers, shared) in ways.items():
        stream = Stream(events, shared=shared)
        loader = DataLoader(stream, BATCH, collate_fn=pad_collate, num_workers=workers)
        traces[name] = train(gpu, loader, ids="event_id")
        ledger = traces[name].summary()
        counts = ledger.samples, ledger.distinct or 0
        table.append([name, *map(str, counts), *(f"{n / ledger.total_s:.0f}" for n in counts)])
    void = traces["four workers"].summary()
    return Finding(
        f"Four workers serve {void.samples} events, {void.distinct} of them distinct: "
        f"{percent(1 - (void.distinct or 0) / void.samples)} of that throughput is useless. Four "
        "workers that share the stream serve each event once.",
        traces,
        table,
    )
