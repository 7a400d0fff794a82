"""Streams of events: what is read, and when."""

import shutil
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import MemmapEvents
from course_utils.loading.stream import EventShards, batched, mixing


def order(stream: EventShards) -> list[int]:
    """Return where on disk each event of the stream lies."""
    place_of = {event: place for place, event in enumerate(stream.events.labels.event_id.tolist())}
    return [place_of[sample["event_id"]] for sample in stream]


def test_every_event_is_what_the_dataset_gives(events_folder: Path) -> None:
    truth = MemmapEvents(events_folder)
    seen = {sample["event_id"]: sample for sample in EventShards(events_folder, buffer=100)}
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
    with pytest.raises(OSError, match="Event 599 cannot be read"):
        list(EventShards(tmp_path / "events"))


@pytest.mark.parametrize("shards", [1, 7, 32, 600])
def test_shards_are_contiguous_and_equal_to_within_one_event(
    shards: int, events_folder: Path
) -> None:
    cut = EventShards(events_folder, shards=shards).shards
    assert list(chain(*cut)) == list(range(600))
    assert len(cut) == shards
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "no 0 shards; take 1 to 600"),
        ({"shards": 601}, "no 601 shards; take 1 to 600"),
        ({"chunk": 0}, "chunk=0 cannot be"),
        ({"interleave": -1}, "interleave=-1 cannot be"),
    ],
)
def test_what_cannot_be_is_refused(
    options: dict[str, int], message: str, events_folder: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        EventShards(events_folder, **options)  # type: ignore[arg-type]
