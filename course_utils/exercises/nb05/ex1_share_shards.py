"""Exercise 05.1: divide the shards of a stream among ranks and workers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from course_utils.exercises.judging import Served, expect_the_same_in_real_workers, serve
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, refuse, right
from keepfed.formatting import plural

ENDLESS = 1_000  # events; all shards together have fewer


@dataclass(eq=False)
class EventShard:
    """A few events that log every read. Like a stream, they have no length and no index."""

    events: Sequence[int]
    log: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[int]:
        self.log.update(["opened", "open"])
        self.log["most open"] = max(self.log["most open"], self.log["open"])
        return self._read()

    def _read(self) -> Iterator[int]:
        for event in self.events:
            self.log["read"] += 1
            yield event
        self.log["open"] -= 1

    def __reduce__(self) -> tuple[Any, ...]:
        return EventShard, (self.events,)  # the log is not a part of the shard


class ShardLayout(NamedTuple):
    """The number of ranks, shards and workers per rank."""

    ranks: int
    shards: int
    workers: int

    def __str__(self) -> str:
        parts = plural(self.workers, "worker"), plural(self.ranks, "rank")
        return f"{parts[0]} on {parts[1]} and {plural(self.shards, 'shard')}"

    @property
    def slots(self) -> int:
        """Number of processes that read."""
        return self.ranks * max(1, self.workers)


# fewer shards than slots, a multiple of the slots, and neither; and one far larger
CASES = [*map(ShardLayout._make, product((1, 2, 3), (1, 2, 7, 12, 31), (0, 1, 2, 3, 5)))]
CASES.append(ShardLayout(3, 90, 11))
ALIKE, TWICE = "all serve the same", "events served too often"
SLIPS = (
    Slip(
        lambda _, got, __: got[ALIKE],
        "With {case}, all {got[all serve the same]} serve the same events. Your code does not use "
        "their number, or computes the share before the workers start and keeps it in self.",
        "Number the slots, rank * workers + worker, inside __iter__. Call get_worker_info() there "
        "too, and keep the share in a local variable.",
    ),
    Slip(
        lambda case, got, _: case.slots > 1 and got[TWICE],
        "With {case}, {got[events served too often]} events are served too often. The shares "
        "overlap: start and step do not fit together, or slots use different orders.",
        "Start at the number of the slot, rank * workers + worker. The step is the number of all "
        "slots, world_size * workers.",
    ),
)


@exercise("05.1", title="Give every slot its share", seconds=30)
def share_of_a_slot(stream_class: type[Any]) -> Verdict:
    """Check a stream over shards for 0 to 11 workers on 1 to 3 ranks, then in real workers."""
    expect_a_class(stream_class, "a dataset", "builds one for each rank")
    expect(
        issubclass(stream_class, IterableDataset),
        f"{stream_class.__name__} is not an IterableDataset, so the loader would request events by "
        "index.",
        "Write class ShardStream(IterableDataset).",
    )
    compare(partial(_two_epochs, stream_class), _plain, CASES, *SLIPS, show=str, call=_call)
    with suppress(ValueError, RuntimeError):
        events = [*stream_class([[1, 2], map(int, ["3", "damaged"])])]
        refuse(
            f"A shard raises an error, but your epoch ends normally, with the events {events}.",
            "Remove the `except` that hides the error.",
        )
    expect_the_same_in_real_workers(stream_class(_shards(7), 1, 2))
    return right(
        "Each event is served once, with 0 to 11 workers on 1 to 3 ranks, even with fewer shards "
        "than slots. Two real workers agree."
    )


def _shards(count: int) -> list[EventShard]:
    """Return shards of different lengths. Each shard begins with event 0, so events repeat."""
    log = Counter[str]()
    return [
        EventShard([0, *range(10 * number + 1, 10 * number + 3 + 2 * (number % 3))], log=log)
        for number in range(count)
    ]


def _two_epochs(stream_class: type[Any], case: ShardLayout) -> dict[str, Any]:
    """Run two epochs in each slot. Every worker has its own copy of the stream of its rank."""
    shards, logs = _shards(case.shards), list[Counter[str]]()
    log = shards[0].log

    def read(stream: Any) -> list[tuple[int, ...]]:
        stream = copy(stream) if case.workers else stream
        log.clear()
        events = iter(stream)
        first = list(islice(events, 1))
        log["at first"] = log["read"]
        first += islice(events, ENDLESS)
        logs.append(log.copy())
        return [tuple(first), tuple(islice(stream, ENDLESS))]

    with process_unchanged(shards):
        streams = [stream_class(shards)]
        if case.ranks > 1:
            streams = [stream_class(shards, rank, case.ranks) for rank in range(case.ranks)]
        for stream in streams if case.workers else ():
            list(islice(stream, 1))  # people look at an event before they start workers
        epochs = serve(streams, case.workers, read)
    served = Served({slot: first for slot, (first, _) in epochs.items()}, _plain(case)["events"])
    excess = (served.counts - Counter(served.wanted)).total()
    alike = ["ranks"] * served.all_ranks_alike + ["workers of a rank"] * served.all_workers_alike
    return {
        "events": sorted(served.counts.elements()),
        "events of the second epoch": sorted(
            event for _, second in epochs.values() for event in second
        ),
        TWICE: excess,
        ALIKE: " and all ".join(alike) if excess else "",
        "shards per slot": sorted(events.count(0) for events in served.by_place.values()),
        "shards opened in all slots": sum(slot["opened"] for slot in logs),
        "shards open at the same time": max(slot["most open"] for slot in logs),
        "events read before the first one is served": max(slot["at first"] for slot in logs),
    }


def _plain(case: ShardLayout) -> dict[str, Any]:
    events = sorted(event for shard in _shards(case.shards) for event in shard.events)
    per_slot = [len(range(slot, case.shards, case.slots)) for slot in range(case.slots)]
    return {
        "events": events,
        "events of the second epoch": events,
        TWICE: 0,
        ALIKE: "",
        "shards per slot": sorted(per_slot),
        "shards opened in all slots": case.shards,
        "shards open at the same time": 1,
        "events read before the first one is served": 1,
    }


def _call(case: ShardLayout) -> str:
    """Return code in which shards of one event each are dealt out to real workers."""
    stream = f"ShardStream([[n] for n in range({case.shards})], rank, {case.ranks})"
    epoch = f"[*DataLoader({stream}, batch_size=None, num_workers={case.workers})]"
    return f"[{epoch} for rank in range({case.ranks})]"
