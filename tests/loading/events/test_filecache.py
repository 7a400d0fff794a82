"""fsspec's own cache of whole files, in front of a slow storage."""

import pickle
from pathlib import Path
from typing import Any

import fsspec
import pytest

from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.loading.events import Events, open_events


@pytest.fixture
def lustre(events_folder: Path) -> SlowFileSystem:
    """Return an emulated storage that remembers nothing itself."""
    return slow_storage(events_folder, "laptop SSD", cache_mb=0)


@pytest.fixture
def cached(lustre: SlowFileSystem, tmp_path: Path) -> Any:
    return fsspec.filesystem("filecache", fs=lustre, cache_storage=str(tmp_path))


def read_all(events: Events) -> list[float]:
    batches = [events.__getitems__(range(first, first + 50)) for first in range(0, 100, 50)]
    return [float(sample["pulses"].sum()) for batch in batches for sample in batch]


@pytest.mark.parametrize("name", ["npz", "npy", "parquet"])
def test_a_second_epoch_makes_no_request(
    name: str, events_folder: Path, lustre: SlowFileSystem, cached: Any
) -> None:
    events = open_events(events_folder, name, fs=cached)
    first = read_all(events)
    counted = lustre.counters()
    assert counted.requests > 0
    assert counted.read_amplification == 1
    lustre.reset_counters()
    assert read_all(events) == first == read_all(open_events(events_folder, name))
    assert lustre.counters().requests == 0


def test_whole_files_are_fetched_for_one_event_and_other_processes_find_them(
    events_folder: Path, lustre: SlowFileSystem, cached: Any
) -> None:
    events = open_events(events_folder, "npy", fs=cached)
    lustre.reset_counters()
    sample = events[3]
    assert lustre.counters().bytes_read == (events_folder / "npy/pulses.npy").stat().st_size
    lustre.reset_counters()
    assert pickle.loads(pickle.dumps(events))[3]["pulses"].equal(sample["pulses"])
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
