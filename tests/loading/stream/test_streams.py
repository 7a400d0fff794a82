from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

from course_utils.hardware.storage import slow_storage
from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import MemmapEvents


def test_shards_are_contiguous_and_equal_within_one_event(events_folder: Path) -> None:
    for count in (1, 7, 600):
        shards = EventShards(events_folder, shards=count).shards
        assert list(chain(*shards)) == list(range(600))
        assert len(shards) == count
        assert max(map(len, shards)) - min(map(len, shards)) <= 1
    for options, message in (
        ({"shards": 0}, r"600 events into 0 shards\. Use 1 to 600"),
        ({"shards": 601}, r"600 events into 601 shards\. Use 1 to 600"),
        ({"chunk": 0}, "chunk must be at least 1, but is 0"),
        ({"interleave": -1}, "interleave must be at least 1, but is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            EventShards(events_folder, **options)  # type: ignore[arg-type]


def test_chunk_is_one_request_and_events_equal_the_dataset(events_folder: Path) -> None:
    storage = slow_storage(events_folder, "laptop SSD", cache_mb=0)
    stream = EventShards(events_folder, shards=10, chunk=20, fs=storage)
    storage.reset_counters()
    seen = {sample["event_id"]: sample["pulses"] for sample in stream}
    assert storage.counters().requests == 600 / 20
    truth = [MemmapEvents(events_folder)[index] for index in (0, 17, 599)]
    assert all(torch.equal(seen[event["event_id"]], event["pulses"]) for event in truth)
    file = stream.events.file
    stream.close()
    assert file.closed


def test_worker_reads_ahead_no_further_than_documented(events_folder: Path) -> None:
    read: list[int] = []

    class Watched(MemmapEvents):
        def __getitems__(self, indices: Any) -> Any:
            read.extend(indices)
            return super().__getitems__(indices)

    stream = EventShards(events_folder, shards=10, interleave=3, chunk=20, buffer=50)
    stream.events = Watched(events_folder)
    for given, _ in enumerate(stream):
        assert len(read) - given <= 50 + 3 * 20
