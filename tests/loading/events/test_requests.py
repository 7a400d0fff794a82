"""What each format asks of the storage to get at its events."""

import gc
from collections.abc import Callable
from pathlib import Path

import apsw
import numpy as np
import pytest

from course_utils.hardware.storage import slow_storage
from course_utils.loading.events import Events, open_events
from course_utils.loading.events.contract import neighbours
from course_utils.loading.events.tar import Shards
from course_utils.measure.trace import record

SOME = np.random.default_rng(0).permutation(600)[:64].tolist()


@pytest.fixture
def dataset(name: str, all_formats: Path) -> Events:
    return open_events(all_formats, name, fs=slow_storage(all_formats, "laptop SSD", cache_mb=0))


def requests(dataset: Events, ask: Callable[[], object]) -> int:
    dataset.fs.reset_counters()
    ask()
    count: int = dataset.fs.counters().requests
    return count


@pytest.mark.parametrize(
    ("name", "share", "stages"),
    [
        ("npz", 1, ["read", "decode"] * 3),
        ("npy", 1 / 3, ["read"]),
        ("hdf5", 1 / 3, ["read"]),
        ("parquet", 1 / 3, ["read", "decode"] * 2),
        ("sqlite", 0, ["read", "decode"]),  # asks for no page twice
        ("tar", 0.8, ["read", "decode"] * 2),
        ("root", 0.8, ["read", "decode"] * 2),
    ],
)
def test_a_batch_takes_fewer_requests_than_single_events_and_its_stages_are_marked(
    dataset: Events, share: float, stages: list[str]
) -> None:
    single = requests(dataset, lambda: [dataset[index] for index in SOME])
    assert single >= 64
    assert requests(dataset, lambda: dataset.__getitems__(SOME)) <= share * single

    with record() as trace:
        dataset.__getitems__([1, 2, 400])
    assert [span.stage for span in trace.spans] == stages


def test_events_that_lie_close_together_are_fetched_together() -> None:
    offsets = np.array([0, 10, 20, 50, 60, 70])

    assert list(neighbours([3, 0, 1, 1], offsets, 0)) == [[0, 1], [3]]
    assert list(neighbours([3, 0, 1], offsets, 29)) == [[0, 1], [3]]
    assert list(neighbours([3, 0, 1], offsets, 30)) == [[0, 1, 3]]
    assert list(neighbours([], offsets, 0)) == []


@pytest.mark.parametrize("name", ["npz"])
def test_npz_takes_one_request_for_each_event(dataset: Events) -> None:
    assert requests(dataset, lambda: dataset.__getitems__([1, 2, 3, 400])) == 4


@pytest.mark.parametrize("name", ["sqlite"])
def test_sqlite_asks_for_a_page_at_a_time(dataset: Events) -> None:
    assert 3 < requests(dataset, lambda: dataset.__getitems__([5, 300, 599])) <= 20
    counted = dataset.fs.counters()
    assert counted.bytes_read <= 4096 * counted.requests


@pytest.mark.parametrize("name", ["tar"])
def test_one_event_of_a_shard_is_one_request_for_its_bytes(dataset: Events) -> None:
    assert requests(dataset, lambda: dataset[300]) == 1
    counted = dataset.fs.counters()
    assert counted.opens == 1
    assert counted.bytes_read == 16 * dataset[300]["n_pulses"] + 128


@pytest.mark.parametrize("name", ["root"])
def test_a_basket_of_each_column_is_read_for_one_event(dataset: Events) -> None:
    assert requests(dataset, lambda: dataset.file) > 0
    assert requests(dataset, lambda: dataset[300]) == 4
    assert requests(dataset, lambda: dataset.__getitems__([300, 301, 500])) == 4


def test_sqlite_forgets_the_file_system_with_the_database(all_formats: Path) -> None:
    before = apsw.vfs_names()
    storage = slow_storage(all_formats, "laptop SSD", cache_mb=0)
    dataset = open_events(all_formats, "sqlite", fs=storage)
    gc.collect()
    assert dataset[3]["n_pulses"] > 0
    assert len(apsw.vfs_names()) == len(before) + 1

    del dataset
    gc.collect()
    assert apsw.vfs_names() == before


def test_a_database_where_nothing_may_be_written_is_read(all_formats: Path, tmp_path: Path) -> None:
    for name in ("events.parquet", "events.db"):
        (tmp_path / name).write_bytes((all_formats / name).read_bytes())
        (tmp_path / name).chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert open_events(tmp_path, "sqlite")[3]["n_pulses"] > 0
    finally:
        tmp_path.chmod(0o755)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.db", "events.parquet"]


def test_only_so_many_shards_stay_open(all_formats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shards, "open_at_once", 2)
    shards = Shards(f"{all_formats}/tar")
    first = [shards.read(shard, 0, 6) for shard in (0, 1, 2, 0)]
    opened = list(shards._files.values())

    assert first == [b"000000", b"000250", b"000500", b"000000"]
    assert len(opened) == 2
    shards.close()
    assert all(file.closed for file in opened)
