"""Streams of shards, beyond the contract of all loaders: batches of workers, requests, buffers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, product
from pathlib import Path

import pytest

from course_utils.hardware.object_store import object_store
from course_utils.loading.shards import decode_event, event_samples, stream_shards, write_shards
from keepfed.loaders.stream import ShardedStream, WorkerSlot, batched
from tests.loaders.ranks import set_rank, start_server
from tests.loading.stream.ranks import event_ids, load


class Letters(ShardedStream[str, str]):
    """Stream whose shards are words and whose samples are their letters."""

    def read(self, shards: Sequence[str]) -> Iterator[str]:
        return iter("".join(shards))

    def size(self, shard: str) -> int:
        return len(shard)


def letters(slot: WorkerSlot | None = None, buffer: int = 3) -> Letters:
    words = ["abc", "de", "fghi", "j", "kl"]
    return Letters(words, shuffle_shards=True, buffer=buffer, seed=0, slot=slot)


def test_workers_of_all_ranks_serve_every_sample_once() -> None:
    """Includes cases with more workers than shards, in which some workers serve nothing."""
    for world_size, workers in ((1, 1), (1, 3), (2, 1), (2, 2), (3, 3)):
        served: Counter[str] = Counter()
        for rank in range(world_size):
            parts = []
            for worker in range(workers):
                stream = letters(WorkerSlot(rank, world_size, worker, workers))
                stream.set_epoch(1)
                next(iter(stream), None)  # an unfinished iterator changes nothing
                parts.append(list(stream))
            served.update(chain(*parts))
            assert sum(map(len, parts)) == len(stream)
            for size, drop_last in product((2, 32), (False, True)):
                batches = sum(len(list(batched(part, size, drop_last=drop_last))) for part in parts)
                counted = stream.count_batches(size, num_workers=workers, drop_last=drop_last)
                assert counted == batches, (world_size, workers, size, drop_last)
        assert served == Counter("abcdefghijkl"), (world_size, workers)
    with pytest.raises(ValueError, match="`buffer` must be at least 1, but is 0"):
        letters(buffer=0)


@pytest.mark.slow
def test_persistent_workers_request_only_the_shards_of_their_rank(
    start_method: str, events_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shards(event_samples(events_folder), tmp_path, per_shard=130)
    start_server(start_method)
    set_rank(monkeypatch, 1, 2)
    with object_store(tmp_path, None) as store:
        stream = stream_shards(store.url, headers=store.headers, decode=decode_event)
        before = store.counters()
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
    assert sorted(orders[0] + others) == list(range(600))
    # the shards of this rank in each epoch, and those of the other rank once
    assert counters.requests - before.requests == 3 * 2 + 3
    assert counters.lookups == before.lookups


def test_two_ranks_shuffle_their_buffers_differently() -> None:
    """With equal random numbers, both ranks would serve the low energies of a sorted disk."""
    orders = []
    for rank in range(2):
        options = {"shuffle_shards": False, "buffer": 4, "seed": 0, "slot": WorkerSlot(rank, 2)}
        orders.append(list(Letters(["abcdef"] * 2, **options)))
    assert sorted(orders[0]) == sorted(orders[1]) == list("abcdef")
    assert orders[0] != orders[1]
