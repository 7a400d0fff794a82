"""Contract of every stream of shards: each sample once, a reproducible order, a known length."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from course_utils.hardware.object_store import object_store
from course_utils.loading.event_shards import EventShards
from course_utils.loading.shards import decode_event, event_samples, stream_shards, write_shards
from keepfed.loaders.stream import ShardedStream, WorkerSlot, batched
from tests.loaders.ranks import set_rank, start_server
from tests.loading.stream.ranks import event_ids, load

EVENTS = list(range(600))


class Letters(ShardedStream[str, str]):
    """Stream whose shards are words and whose samples are their letters."""

    def read(self, shards: Sequence[str]) -> Iterator[str]:
        return iter("".join(shards))

    def size(self, shard: str) -> int:
        return len(shard)


class Kind(NamedTuple):
    """A stream of five shards: its factory, the names of its samples, and all names on disk."""

    make: Callable[..., ShardedStream[Any, Any]]
    name: Callable[[Any], Any]
    all: list[Any]

    def order(self, stream: ShardedStream[Any, Any]) -> list[Any]:
        return list(map(self.name, stream))


@pytest.fixture(scope="module")
def tar(events_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with 600 events in 5 shards. Do not write to it."""
    folder = tmp_path_factory.mktemp("data") / "shards"
    write_shards(event_samples(events_folder), folder, per_shard=130)
    return folder


def letters(**options: Any) -> Letters:
    words = ["abc", "de", "fghi", "j", "kl"]
    return Letters(words, **{"shuffle_shards": True, "buffer": 3, "seed": 0, **options})


@pytest.fixture(params=["letters", "events", "tar"])
def kind(request: pytest.FixtureRequest, events_folder: Path, tar: Path) -> Kind:
    """Return each kind of stream."""

    def events(**options: Any) -> EventShards:
        return EventShards(events_folder, **{"shards": 5, "interleave": 1, **options})

    if request.param == "letters":
        return Kind(letters, str, list("abcdefghijkl"))
    if request.param == "events":
        ids = events().events.labels.event_id.tolist()
        return Kind(events, lambda sample: ids.index(sample["event_id"]), EVENTS)
    return Kind(lambda **how: stream_shards(tar, **how), lambda s: int(s["__key__"]), EVENTS)


@pytest.mark.parametrize(("world_size", "workers"), [(1, 1), (2, 2), (3, 3)])
def test_workers_of_all_ranks_serve_every_sample_once(
    world_size: int, workers: int, kind: Kind
) -> None:
    """Includes cases with more workers than shards, in which some workers serve nothing."""
    served: Counter[Any] = Counter()
    for rank in range(world_size):
        parts = []
        for worker in range(workers):
            place = WorkerSlot(rank, world_size, worker, workers)
            stream = kind.make(slot=place)
            stream.set_epoch(1)
            parts.append(kind.order(stream))
        served.update(chain(*parts))
        assert sum(map(len, parts)) == len(stream)
        for drop_last in (False, True):
            batches = sum(len(list(batched(part, 32, drop_last=drop_last))) for part in parts)
            counted = stream.count_batches(32, num_workers=workers, drop_last=drop_last)
            assert counted == batches
    assert served == Counter(kind.all)


def test_order_depends_only_on_seed_and_epoch(kind: Kind) -> None:
    stream, orders = kind.make(), []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        next(iter(stream))  # an unfinished iterator changes nothing
        orders.append(kind.order(stream))
    assert orders[0] == orders[2] == kind.order(kind.make()) != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == kind.all
    assert kind.order(kind.make(seed=1)) != orders[0]
    assert kind.order(kind.make(shuffle_shards=False, buffer=1)) == kind.all
    with pytest.raises(ValueError, match="`buffer` must be at least 1, but is 0"):
        kind.make(buffer=0)


@pytest.mark.slow
def test_persistent_workers_serve_their_rank_and_see_the_epoch(
    start_method: str, tar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_server(start_method)
    set_rank(monkeypatch, 1, 2)
    with object_store(tar, None) as store:
        stream = stream_shards(store.url, headers=store.headers, decode=decode_event)
        store.reset_counters()
        loader = load(stream, 2, multiprocessing_context=start_method, persistent_workers=True)
        orders = []
        for epoch in (0, 1, 0):
            stream.set_epoch(epoch)
            orders.append(event_ids(loader))
        set_rank(monkeypatch, 0, 2)
        stream.set_epoch(0)
        others = event_ids(load(stream))
        counters = store.counters()
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0] + others) == EVENTS
    # the shards of this rank in each epoch, and those of the other rank once
    assert (counters.requests, counters.lookups) == (3 * 2 + 3, 0)


def test_two_ranks_shuffle_their_buffers_differently() -> None:
    """With equal random numbers, both ranks would serve the low energies of a sorted disk."""
    words, places = ["abcdef"] * 2, [WorkerSlot(rank, 2) for rank in range(2)]
    orders = [
        list(Letters(words, shuffle_shards=False, buffer=4, seed=0, slot=place)) for place in places
    ]
    assert sorted(orders[0]) == sorted(orders[1]) == list("abcdef")
    assert orders[0] != orders[1]
