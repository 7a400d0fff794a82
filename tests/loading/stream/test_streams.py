"""Streams of events: what is read, and when."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.hardware.storage import slow_storage
from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import MemmapEvents


@pytest.mark.parametrize("shards", [1, 7, 600])
def test_shards_are_contiguous_and_equal_to_within_one_event(
    shards: int, events_folder: Path
) -> None:
    cut = EventShards(events_folder, shards=shards).shards
    assert list(chain(*cut)) == list(range(600))
    assert len(cut) == shards
    assert max(map(len, cut)) - min(map(len, cut)) <= 1


def test_a_chunk_is_one_request_and_an_event_what_the_dataset_gives(events_folder: Path) -> None:
    storage = slow_storage(events_folder, "laptop SSD", cache_mb=0)
    stream = EventShards(events_folder, shards=10, chunk=20, fs=storage)
    storage.reset_counters()
    seen = {sample["event_id"]: sample["pulses"] for sample in stream}
    assert storage.counters().requests == 600 / 20
    truth = [MemmapEvents(events_folder)[index] for index in (0, 17, 599)]
    assert all(torch.equal(seen[event["event_id"]], event["pulses"]) for event in truth)


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
