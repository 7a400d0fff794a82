"""fsspec's own cache of whole files, in front of a slow storage."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.loading.events import Events, MemmapEvents, NpzEvents
from course_utils.loading.events.datasets import ParquetEvents


@pytest.fixture
def lustre(events_folder: Path) -> SlowFileSystem:
    """Return an emulated storage that remembers nothing itself."""
    return slow_storage(events_folder, "laptop SSD", cache_mb=0)


def read_all(events: Events) -> list[float]:
    batches = [events.__getitems__(range(first, first + 50)) for first in range(0, 100, 50)]
    return [float(sample["pulses"].sum()) for batch in batches for sample in batch]


@pytest.mark.parametrize("kind", [NpzEvents, MemmapEvents, ParquetEvents])
def test_a_second_epoch_makes_no_request(
    kind: type[Events], events_folder: Path, lustre: SlowFileSystem, tmp_path: Path
) -> None:
    cached = fsspec.filesystem("filecache", fs=lustre, cache_storage=str(tmp_path))
    events = kind(events_folder, fs=cached)
    first = read_all(events)
    counted = lustre.counters()
    assert counted.requests > 0
    assert counted.read_amplification == 1
    lustre.reset_counters()
    assert read_all(events) == first == read_all(kind(events_folder))
    assert lustre.counters().requests == 0


def test_it_fetches_whole_files_for_a_single_event(
    events_folder: Path, lustre: SlowFileSystem, tmp_path: Path
) -> None:
    cached = fsspec.filesystem("filecache", fs=lustre, cache_storage=str(tmp_path))
    events = MemmapEvents(events_folder, fs=cached)
    lustre.reset_counters()
    events[3]
    assert lustre.counters().bytes_read == (events_folder / "npy/pulses.npy").stat().st_size


def test_a_worker_finds_what_another_process_fetched(
    events_folder: Path, lustre: SlowFileSystem, tmp_path: Path
) -> None:
    cached = fsspec.filesystem("filecache", fs=lustre, cache_storage=str(tmp_path))
    events = MemmapEvents(events_folder, fs=cached)
    events[3]
    lustre.reset_counters()
    assert pickle.loads(pickle.dumps(events))[3]["pulses"].equal(events[3]["pulses"])
    assert lustre.counters().requests == 0


def test_a_chained_url_does_the_same(
    events_folder: Path, lustre: SlowFileSystem, tmp_path: Path
) -> None:
    path = events_folder / "npy" / "offsets.npy"
    options = {"slow": lustre.storage_options, "filecache": {"cache_storage": str(tmp_path)}}
    for requests in (1, 0):
        with fsspec.open(f"filecache::slow://{path.as_posix()}", **options) as file:
            assert file.read() == path.read_bytes()
        assert lustre.counters().requests == requests
        lustre.reset_counters()
