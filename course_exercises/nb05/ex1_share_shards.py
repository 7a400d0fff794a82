"""05.1: who serves which shard of a stream."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from torch.utils.data import IterableDataset

from course_exercises.judging import Served, expect_the_same_in_real_workers, serve
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from keepfed.formatting import plural

WORKERS, RANKS = range(6), range(1, 4)
COUNTS = (1, 2, 7, 12, 31)  # shards; fewer than places, a multiple of them, neither
ENDLESS = 1_000  # events; all shards together have fewer


@dataclass(eq=False)
class SharedShard:
    """A few events that count how often somebody began to read them."""

    events: range
    opened: int = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


@exercise("05.1", title="Give every place its share", seconds=180)
def share_of_a_place(stream_class: type[Any]) -> Verdict:
    """Judge a stream over shards: for 0 to 5 workers on 1 to 3 ranks, then in real workers."""
    expect_a_class(stream_class, "a dataset", "builds one for each rank")
    expect(
        issubclass(stream_class, IterableDataset),
        f"{stream_class.__name__} is no IterableDataset: the loader would ask it for events by "
        "number.",
        "Write class ShardStream(IterableDataset).",
    )
    for workers, world_size, count in product(WORKERS, RANKS, COUNTS):
        _judge_places(stream_class, _shards(count), workers, world_size)
    expect_the_same_in_real_workers(
        stream_class(_shards(7), 1, 2),
        lambda epoch: list(map(int, epoch)),
        "events",
        "what you ask for has another answer there",
        "Ask get_worker_info() inside __iter__: only that runs in the worker.",
    )
    return right(
        "Each event once, for 0 to 5 workers on 1 to 3 ranks, also with fewer shards than places; "
        "and real workers agree."
    )


def _shards(count: int) -> list[SharedShard]:
    return [
        SharedShard(range(10 * shard, 10 * shard + 3 + 2 * (shard % 3))) for shard in range(count)
    ]


def _judge_places(
    stream_class: type[Any], shards: Sequence[SharedShard], workers: int, world_size: int
) -> None:
    streams = [stream_class(list(shards), rank, world_size) for rank in range(world_size)]
    events = [event for shard in shards for event in shard.events]
    served = Served(serve(streams, workers, _read), events)
    opened = sum(shard.opened for shard in shards)
    first = served.by_place[world_size - 1, 0]
    again = serve(streams[-1:], workers, _read)[0, 0]
    expect(
        again == first or len(again) != len(first),
        "A place that reads twice serves other events, or another order: something is drawn "
        "without a seed. So every place deals from a pack of its own, and some events come twice.",
        "Deal from self.shards as it is, or shuffle with a seed that all places share.",
    )
    where = (
        f"With {plural(workers, 'worker')} on {plural(world_size, 'rank')} and "
        f"{plural(len(shards), 'shard')}"
    )
    _judge_share(served, shards, where)
    _judge_reading(served, shards, opened, where)
    expect(
        again == first,
        "The second epoch serves fewer or more events than the first: something was used up.",
        "Work out the share anew in every __iter__, and keep nothing in self.",
    )


def _read(stream: Any) -> list[int]:
    try:
        found = list(islice(stream, ENDLESS))
    except (AttributeError, TypeError) as error:
        expect(
            "NoneType" not in str(error),
            "Without workers get_worker_info() returns None: the main process reads by itself, "
            f"and you ask None for a number ({error}).",
            "Take worker 0 of 1 when it is None.",
        )
        expect(
            "non-iterator" not in str(error),
            f"__iter__ returns what is no iterator ({error}).",
            "Yield the events one by one: with `yield` in it, __iter__ makes an iterator itself.",
        )
        raise
    expect(
        len(found) < ENDLESS,
        "One place serves more events than there are: the stream begins again, perhaps for ever.",
        "Go through the shards of the place once. To repeat a stream is for who loops over it.",
    )
    return found


def _judge_share(served: Served[int], shards: Sequence[SharedShard], where: str) -> None:
    expect(
        served.counts.keys() <= set(served.wanted),
        f"{where} something is served that is no event of a shard.",
        "Yield the events of a shard one by one: yield from shard.",
    )
    expect(
        not served.all_ranks_alike,
        f"{where} every rank serves the same events: its number is not used, or places for which "
        "no shard is left begin again at the first.",
        "Number the places: rank * workers + worker, out of world_size * workers.",
    )
    expect(
        not served.all_workers_alike,
        f"{where} the workers of a rank serve the same events. Either their number is not used, "
        "or it was asked for in __init__: that runs in the main process, where there is none.",
        "Ask get_worker_info() inside __iter__, and let its id decide too.",
    )
    expect(
        not served.twice,
        f"{where} {served.twice} of {len(served.wanted)} events are served more than once. The "
        "shares overlap: where they start and how far they step do not belong together, or places "
        "do not deal from the same order.",
        "Start at the number of the place, rank * workers + worker, and step by the number of "
        "all places, world_size * workers.",
    )
    lost = [shard for shard in shards if not set(shard.events) <= served.counts.keys()]
    expect(
        not lost or len(lost) != len(shards) % len(served.by_place) or lost[-1] != shards[-1],
        f"{where} nobody reads the end, {plural(len(lost), 'shard')}. Shares of equal size lose "
        "the tail when the shards do not divide evenly.",
        "Deal them out like cards: shards[place::places] loses none.",
    )
    expect(
        not lost,
        f"{where} nobody reads {plural(len(lost), 'shard')}, or not the whole of it. The first "
        "place has the number 0, and the step is the number of all places, a product and no sum.",
        "Deal them out like cards: shards[rank * workers + worker :: world_size * workers]. "
        "And serve every event: yield from shard.",
    )


def _judge_reading(
    served: Served[int], shards: Sequence[SharedShard], opened: int, where: str
) -> None:
    """Judge who opened what: a share of the events is no share of the reading."""
    expect(
        opened <= len(shards),
        f"{where} every event is served once, but {opened} shards are opened: places read events "
        "that they throw away. More workers would not read faster.",
        "Divide the shards, not the events.",
    )
    firsts = {shard.events[0] for shard in shards}
    sizes = [len(firsts.intersection(events)) for events in served.by_place.values()]
    expect(
        max(sizes) - min(sizes) <= 1,
        f"{where} one place gets {max(sizes)} of them and another {min(sizes)}. "
        "The others wait for the slowest.",
        "Deal them out like cards: shards[place::places] differs by one at most.",
    )
