import multiprocessing
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import MemmapEvents
from course_utils.loading.stream import EventShards, batched, mixing
from course_utils.loading.stream.splitting import even_batches
from course_utils.measure.trace import record
from tests.loading.ranks import MORE_WORKERS_THAN_CORES, event_ids, load, set_rank


def order(stream: EventShards) -> list[int]:
    """Return where on disk each event of the stream lies."""
    place_of = {event: place for place, event in enumerate(stream.events.labels.event_id.tolist())}
    return [place_of[sample["event_id"]] for sample in stream]


def test_every_event_comes_once_and_is_what_the_dataset_gives(events_folder: Path) -> None:
    truth = MemmapEvents(events_folder)
    seen = {sample["event_id"]: sample for sample in EventShards(events_folder, buffer=100)}

    assert sorted(seen) == sorted(truth.labels.event_id.tolist())
    for index in (0, 17, 599):
        sample = truth[index]
        assert torch.equal(seen[sample["event_id"]]["pulses"], sample["pulses"])


def test_a_flipped_bit_ends_the_stream_with_the_name_of_the_event(
    events_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(events_folder, tmp_path / "events")
    pulses = tmp_path / "events/npy/pulses.npy"
    flipped = bytearray(pulses.read_bytes())
    flipped[-7] ^= 1
    pulses.write_bytes(flipped)
    stream = EventShards(tmp_path / "events")

    with pytest.raises(OSError, match="Event 599 cannot be read"):
        list(stream)


@pytest.mark.parametrize("shards", [1, 7, 32, 600])
def test_shards_are_contiguous_and_equal_to_within_one_event(
    shards: int, events_folder: Path
) -> None:
    cut = EventShards(events_folder, shards=shards).shards

    assert list(chain(*cut)) == list(range(600))
    assert len(cut) == shards
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


@pytest.mark.slow
@pytest.mark.filterwarnings(MORE_WORKERS_THAN_CORES)
@pytest.mark.parametrize("num_workers", [0, 1, 2, 5])
def test_all_workers_of_all_ranks_together_serve_every_event_once(
    num_workers: int, events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for world_size in (1, 3):
        served: Counter[int] = Counter()
        for rank in range(world_size):
            set_rank(monkeypatch, rank, world_size)
            stream = EventShards(events_folder, shards=13, buffer=50)
            with record() as trace:
                for _ in trace.batches(load(stream, num_workers), ids="event_id"):
                    pass
            assert trace.samples == len(stream)
            assert trace.served == stream.count_batches(32, num_workers=num_workers)
            served.update(trace.sample_ids)  # type: ignore[arg-type]
        assert set(served.values()) == {1}
        assert len(served) == 600


def test_places_without_a_shard_serve_nothing(
    events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for rank in range(3):
        set_rank(monkeypatch, rank, 3)
        stream = EventShards(events_folder, shards=2)
        counts.append(len(stream))
        assert len(order(stream)) == counts[-1]
    assert sorted(counts) == [0, 300, 300]


def orders_of_three_epochs(stream: EventShards, loader: DataLoader[Any]) -> list[list[int]]:
    orders = []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        orders.append(event_ids(loader))
    return orders


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_order_is_new_in_every_epoch_and_the_same_again(
    num_workers: int, events_folder: Path
) -> None:
    stream = EventShards(events_folder, shards=12, buffer=50)
    first, second, again = orders_of_three_epochs(stream, load(stream, num_workers))

    assert first == again != second
    assert sorted(first) == sorted(second) == list(range(600))


@pytest.mark.slow
def test_persistent_workers_of_a_rank_have_its_events_and_see_the_epoch(
    start_method: str, events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if start_method == "forkserver":
        from multiprocessing import forkserver  # does not exist on Windows

        forkserver.ensure_running()  # so its workers inherit an environment without the rank
    set_rank(monkeypatch, 1, 2)
    stream = EventShards(events_folder, shards=12, buffer=50)
    loader = load(stream, 2, multiprocessing_context=start_method, persistent_workers=True)
    first, second, again = orders_of_three_epochs(stream, loader)
    set_rank(monkeypatch, 0, 2)
    stream.set_epoch(0)
    others = event_ids(load(stream))

    assert first == again != second
    assert sorted(first + others) == list(range(600))


def test_another_seed_is_another_order(events_folder: Path) -> None:
    assert order(EventShards(events_folder, seed=1)) != order(EventShards(events_folder, seed=2))
    assert order(EventShards(events_folder, seed=1)) == order(EventShards(events_folder, seed=1))


def test_two_ranks_draw_from_their_buffers_differently(
    events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same draws, both ranks would serve the low energies of a sorted disk together."""
    orders = []
    for rank in range(2):
        set_rank(monkeypatch, rank, 2)
        stream = EventShards(events_folder, shards=2, interleave=1, shuffle_shards=False)
        orders.append([place - 300 * rank for place in order(stream)])

    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_nothing_is_shuffled_if_nothing_is_asked_for(events_folder: Path) -> None:
    plain = EventShards(events_folder, interleave=1, buffer=1, shuffle_shards=False)

    assert order(plain) == list(range(600))


@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_is_the_truth_in_every_epoch(
    drop_last: bool, events_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(2):
        set_rank(monkeypatch, rank, 2)
        stream = EventShards(events_folder, shards=7)
        for epoch in range(5):
            stream.set_epoch(epoch)
            assert len(stream) == len(order(stream))
            batches = list(batched(stream, 32, drop_last=drop_last))
            assert stream.count_batches(32, drop_last=drop_last) == len(batches)


def test_ranks_end_evenly_with_a_shard_for_every_worker(events_folder: Path) -> None:
    sizes = [len(shard) for shard in EventShards(events_folder, shards=12).shards]

    assert even_batches(sizes, 25, world_size=2, num_workers=3) == 600 // 2 // 25


def test_a_chunk_is_one_request(events_folder: Path) -> None:
    storage = slow_storage(events_folder, "laptop SSD", cache_mb=0)
    stream = EventShards(events_folder, shards=10, chunk=20, fs=storage)
    storage.reset_counters()
    order(stream)

    assert storage.counters().requests == 600 / 20


def test_a_worker_reads_no_further_ahead_than_it_says(events_folder: Path) -> None:
    read: list[int] = []

    class Watched(MemmapEvents):
        def __getitems__(self, indices: Any) -> Any:
            read.extend(indices)
            return super().__getitems__(indices)

    stream = EventShards(events_folder, shards=10, interleave=3, chunk=20, buffer=50)
    stream.events = Watched(events_folder)
    for given, _ in enumerate(stream):
        assert len(read) - given <= 50 + 3 * 20


def test_more_shards_and_a_larger_buffer_mix_better(events_folder: Path) -> None:
    labels = MemmapEvents(events_folder).labels.energy

    def scatter(**how: Any) -> float:
        batches = batched(order(EventShards(events_folder, **how)), 20)
        return mixing(batches, labels, blocks=10).ratio

    in_order = scatter(interleave=1, buffer=1, shuffle_shards=False)
    by_shards = scatter(shards=60, interleave=4, buffer=1)
    with_buffer = scatter(shards=60, interleave=4, buffer=300)
    assert in_order > 1.3 * by_shards > 1.3 * 1.3 * with_buffer


@pytest.mark.slow
def test_leaving_early_leaves_no_worker(events_folder: Path) -> None:
    for batch in load(EventShards(events_folder), 2):
        assert len(batch["event_id"]) == 32
        break
    del batch

    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "no 0 shards; take 1 to 600"),
        ({"shards": 601}, "no 601 shards; take 1 to 600"),
        ({"buffer": 0}, "buffer=0 cannot be"),
        ({"chunk": 0}, "chunk=0 cannot be"),
        ({"interleave": -1}, "interleave=-1 cannot be"),
    ],
)
def test_what_cannot_be_is_refused(
    options: dict[str, int], message: str, events_folder: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        EventShards(events_folder, **options)  # type: ignore[arg-type]


def test_an_iterator_left_half_way_can_be_started_again(events_folder: Path) -> None:
    stream = EventShards(events_folder)
    first: Iterator[Any] = iter(stream)
    next(first)

    assert sorted(order(stream)) == list(range(600))
