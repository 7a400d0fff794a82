"""Checks of notebook 05. Here: who serves which shard of a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_in_a_file,
    in_worker,
    right,
)
from course_utils.words import plural

WORKERS, RANKS = range(6), range(1, 4)
COUNTS = (1, 2, 7, 12, 31)  # shards; fewer than places, a multiple of them, neither


class Shard:
    """A few events that count how often somebody began to read them."""

    def __init__(self, first: int, count: int):
        self.events = range(first, first + count)
        self.opened = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


@exercise("05.1", title="Give every place its share", seconds=180)
def share_of_a_place(stream_class: type[Any]) -> Verdict:
    """Judge a stream over shards: for 0 to 5 workers on 1 to 3 ranks, then in real workers."""
    expect(
        isinstance(stream_class, type),
        "This is a dataset, not a class. The check builds one for each rank.",
        "Hand over the class itself, without parentheses.",
    )
    expect(
        issubclass(stream_class, IterableDataset),
        f"{stream_class.__name__} is no IterableDataset: the loader would ask it for events by "
        "number.",
        "Write class ShardStream(IterableDataset).",
    )
    for workers, world_size, count in product(WORKERS, RANKS, COUNTS):
        _judge_places(stream_class, _shards(count), workers, world_size)
    expect_in_a_file(stream_class)
    _judge_real_workers(stream_class, _shards(7))
    return right(
        "Each event once, for 0 to 5 workers on 1 to 3 ranks, also with fewer shards than places; "
        "and real workers agree."
    )


def _shards(count: int) -> list[Shard]:
    sizes = [3 + 2 * (shard % 3) for shard in range(count)]
    return [Shard(100 + 10 * shard, size) for shard, size in enumerate(sizes)]


def _judge_places(
    stream_class: type[Any], shards: Sequence[Shard], workers: int, world_size: int
) -> None:
    served: dict[tuple[int, int], list[int]] = {}
    for rank in range(world_size):
        # made once by each rank, as in reality, and copied to its workers afterwards
        stream = stream_class(list(shards), rank, world_size)
        for worker in range(max(workers, 1)):
            with in_worker(worker, workers):
                served[rank, worker] = _read(stream)
    where = f"With {_name(workers, world_size)} and {plural(len(shards), 'shard')}"
    _judge_share(served, shards, where)
    _judge_reading(shards, served, where)
    with in_worker(0, workers):
        expect(
            _read(stream) == served[world_size - 1, 0],
            "The second epoch serves other events than the first: something was used up.",
            "Work out the share anew in every __iter__, and keep nothing in self.",
        )


def _read(stream: Any) -> list[int]:
    try:
        return list(stream)
    except (AttributeError, TypeError) as error:
        expect(
            "NoneType" not in str(error),
            "Without workers get_worker_info() returns None: the main process reads by itself, "
            f"and you ask None for a number ({error}).",
            "Take worker 0 of 1 when it is None.",
        )
        raise


def _judge_share(
    served: dict[tuple[int, int], list[int]], shards: Sequence[Shard], where: str
) -> None:
    wanted = [event for shard in shards for event in shard.events]
    counts = Counter(event for events in served.values() for event in events)
    expect(
        counts.keys() <= set(wanted),
        f"{where} something is served that is no event of a shard.",
        "Yield the events of a shard one by one: yield from shard.",
    )
    twice = sum(1 for count in counts.values() if count > 1)
    expect(
        not twice or not _same(served, by="rank"),
        f"{where} every rank serves the same events: its number is not used.",
        "Number the places: rank * workers + worker, out of world_size * workers.",
    )
    expect(
        not twice or not _same(served, by="worker"),
        f"{where} the workers of a rank serve the same events. Either their number is not used, "
        "or it was asked for in __init__: that runs in the main process, where there is none.",
        "Ask get_worker_info() inside __iter__, and let its id decide too.",
    )
    expect(
        not twice,
        f"{where} {twice} of {len(wanted)} events are served more than once. The shares overlap: "
        "where they start and how far they step do not belong together.",
        "Start at the number of the place, rank * workers + worker, and step by the number of "
        "all places, world_size * workers.",
    )
    lost = [shard for shard in shards if not set(shard.events) <= counts.keys()]
    expect(
        not lost or list(lost) != list(shards[-len(lost) :]),
        f"{where} the last {len(lost)} are read by nobody. Shares of equal size lose the tail "
        "when the shards do not divide evenly.",
        "Deal them out like cards: shards[place::places] loses none.",
    )
    expect(
        not lost,
        f"{where} nobody reads {plural(len(lost), 'shard')}.",
        "Deal them out like cards: shards[place::places], with the places numbered from 0.",
    )


def _same(served: dict[tuple[int, int], list[int]], *, by: str) -> bool:
    """Tell whether all ranks, or all workers of a rank, serve the same (and something)."""
    at = 0 if by == "rank" else 1
    groups: dict[int, set[tuple[int, ...]]] = {}
    for place, events in served.items():
        groups.setdefault(place[1 - at], set()).add(tuple(sorted(events)))
    several = len({place[at] for place in served}) > 1
    return several and all(len(group) == 1 for group in groups.values())


def _judge_reading(
    shards: Sequence[Shard], served: dict[tuple[int, int], list[int]], where: str
) -> None:
    """Judge who opened what: a share of the events is no share of the reading."""
    opened = sum(shard.opened for shard in shards)
    expect(
        opened <= len(shards),
        f"{where} every event is served once, but {opened} shards are opened: places read events "
        "that they throw away. More workers would not read faster.",
        "Divide the shards, not the events.",
    )
    sizes = {place: sum(e in events for e in _firsts(shards)) for place, events in served.items()}
    expect(
        max(sizes.values()) - min(sizes.values()) <= 1,
        f"{where} one place gets {max(sizes.values())} of them and another {min(sizes.values())}. "
        "The others wait for the slowest.",
        "Deal them out like cards: shards[place::places] differs by one at most.",
    )


def _firsts(shards: Sequence[Shard]) -> list[int]:
    return [shard.events[0] for shard in shards]


def _judge_real_workers(stream_class: type[Any], shards: Sequence[Shard]) -> None:
    """Judge two workers of the second of two ranks."""
    stream = stream_class(list(shards), 1, 2)
    wanted: set[int] = set()
    for worker in range(2):
        with in_worker(worker, 2):
            wanted.update(stream)
    served = [int(event) for event in DataLoader(stream, None, num_workers=2, timeout=120)]
    expect(
        sorted(served) == sorted(wanted),
        f"In real workers, 2 of the second of 2 ranks, {len(served)} events are served instead of "
        f"{len(wanted)}: what you ask for has another answer there.",
        "Ask get_worker_info() inside __iter__: only that runs in the worker.",
    )


def _name(workers: int, world_size: int) -> str:
    parts = (workers, "worker"), (world_size, "rank")
    return " on ".join(f"{count} {word}{'s' * (count != 1)}" for count, word in parts)
