from pathlib import Path

import numpy as np
import pytest

from course_utils.hardware.storage import VirtualClock, slow_storage
from course_utils.loading.events import Events, open_events
from course_utils.loading.events.contract import neighbors
from course_utils.loading.events.tar import Shards
from keepfed.measure.trace import record

SOME = np.random.default_rng(0).permutation(600)[:64].tolist()


def asked(dataset: Events, *batches: list[int]) -> tuple[int, int]:
    dataset.fs.reset_counters()
    for batch in batches:
        dataset.__getitems__(batch)
    return dataset.fs.counters().requests, dataset.fs.counters().bytes_read


READS = {  # format: share of the requests of single events, requests of one, stages of three
    "npz": (1, 1, ["read", "decode"] * 3),
    "npy": (1 / 3, 1, ["read"]),
    "hdf5": (1 / 3, 1, ["read"]),
    "parquet": (1 / 3, 1, ["read", "decode"] * 2),
    "sqlite": (0, 0, ["read", "decode"]),  # requests no page twice
    "tar": (0.8, 1, ["read", "decode"] * 2),
    "root": (0.8, 4, ["read", "decode"] * 2),  # a basket per column
}


def test_batch_needs_fewer_requests_than_single_events(all_formats: Path) -> None:
    for name, (share, one, stages) in READS.items():
        fs = slow_storage(all_formats, "laptop SSD", cache_mb=0)
        VirtualClock(fs)
        dataset = open_events(all_formats, name, fs=fs)
        single, size = asked(dataset, *([index] for index in SOME))
        assert single >= 64, name
        assert name != "sqlite" or size <= 4096 * single  # one page at a time
        assert asked(dataset, SOME)[0] <= share * single, name
        assert asked(dataset, [SOME[0]])[0] == one, name
        with record() as trace:
            dataset.__getitems__([1, 2, 400])
        assert [span.stage for span in trace.spans] == stages, name


def test_adjacent_events_are_read_together() -> None:
    offsets = np.array([0, 10, 20, 50, 60, 70])
    assert list(neighbors([3, 0, 1, 1], offsets, 0)) == [[0, 1], [3]]
    assert list(neighbors([3, 0, 1], offsets, 29)) == [[0, 1], [3]]
    assert list(neighbors([3, 0, 1], offsets, 30)) == [[0, 1, 3]]
    assert list(neighbors([], offsets, 0)) == []


def test_database_in_a_read_only_folder_can_be_read(all_formats: Path, tmp_path: Path) -> None:
    for name in ("events.parquet", "events.db"):
        (tmp_path / name).write_bytes((all_formats / name).read_bytes())
        (tmp_path / name).chmod(0o444)
    tmp_path.chmod(0o555)
    try:
        assert open_events(tmp_path, "sqlite")[3]["n_pulses"] > 0
    finally:
        tmp_path.chmod(0o755)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.db", "events.parquet"]


def test_few_shards_are_open_at_once(all_formats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shards, "open_at_once", 2)
    shards = Shards(f"{all_formats}/tar", None)
    first = [shards.read(shard, 0, 6) for shard in (0, 1, 2, 0)]
    assert first == [b"000000", b"000250", b"000500", b"000000"]
    assert len(shards._files) == 2
    shards.close()
