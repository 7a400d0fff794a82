"""fsspec's own cache of whole files, in front of a slow storage."""

import pickle
from pathlib import Path

import fsspec
import pytest

from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import Events, open_events


def read_all(events: Events) -> list[float]:
    batches = [events.__getitems__(range(first, first + 50)) for first in range(0, 100, 50)]
    return [float(sample["pulses"].sum()) for batch in batches for sample in batch]


@pytest.mark.parametrize("name", ["npz", "npy", "parquet"])
def test_whole_files_are_fetched_once_and_other_processes_find_them(
    name: str, events_folder: Path, tmp_path: Path
) -> None:
    lustre = slow_storage(events_folder, "laptop SSD", cache_mb=0)
    cached = fsspec.filesystem("filecache", fs=lustre, cache_storage=str(tmp_path))
    events = open_events(events_folder, name, fs=cached)
    before = lustre.counters().bytes_read
    _ = events[3]
    if name != "parquet":  # which had to be opened to learn of its groups
        assert lustre.counters().bytes_read - before == Path(events.path_of(3)).stat().st_size
    first = read_all(events)
    assert lustre.counters().read_amplification == 1

    lustre.reset_counters()
    assert read_all(events) == first == read_all(open_events(events_folder, name))
    assert read_all(pickle.loads(pickle.dumps(events))) == first
    assert lustre.counters().requests == 0


def test_a_chained_url_does_the_same(events_folder: Path, tmp_path: Path) -> None:
    lustre = slow_storage(events_folder, "laptop SSD", cache_mb=0)
    path = events_folder / "npy" / "offsets.npy"
    options = {"slow": lustre.storage_options, "filecache": {"cache_storage": str(tmp_path)}}
    for requests in (1, 0):
        with fsspec.open(f"filecache::slow://{path.as_posix()}", **options) as file:
            assert file.read() == path.read_bytes()
        assert lustre.counters().requests == requests
        lustre.reset_counters()
