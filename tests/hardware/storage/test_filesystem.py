"""The storage as a file system; the tests of the formats check that all of them can read it."""

import io
import pickle
from dataclasses import replace
from unittest.mock import Mock

import fsspec
import numpy as np
import pytest

from course_utils.hardware import storage
from keepfed.measure.trace import record

INSTANT = replace(storage.UNLIMITED, name="busy Lustre", requests_at_once=8, cache_mb=1_000)
PULSES = np.arange(40_000, dtype="f4").reshape(-1, 4)


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "pulses.npy", PULSES)
    np.savez(tmp_path / "event.npz", pulses=PULSES[:100], label=3)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "lines.csv").write_bytes(b"x,y\n" + b"1,2\n" * 5_000)
    return tmp_path


@pytest.fixture
def fs(folder):
    return storage.slow_storage(folder, INSTANT)


def test_numpy_reads_npz_with_one_request_and_npy_by_url(folder, fs):
    with fs.open("event.npz") as file, np.load(file) as event:
        np.testing.assert_array_equal(event["pulses"], PULSES[:100])
        assert event["label"] == 3
    assert (fs.counters().opens, fs.counters().requests) == (1, 1)
    url = f"slow://{(folder / 'pulses.npy').as_posix()}"
    with fsspec.open(url, **fs.storage_options) as file:
        np.testing.assert_array_equal(np.load(file), PULSES)


def test_text_lines_and_bytes_are_read_up_to_the_end(fs):
    with fs.open("sub/lines.csv", "r") as file:
        assert file.readline() == "x,y\n"
        assert len(file.readlines()) == 5_000
    with fs.open("pulses.npy") as file:
        file.seek(-5, io.SEEK_END)
        assert len(file.read(100)) == 5
        assert file.read(100) == b""
        assert len(fs.cat_file("pulses.npy", start=2, end=7)) == 5


def test_each_read_is_one_request_for_the_requested_bytes(folder):
    for cache_mb, bytes_read in ((0, 3_000), (10, 3 * storage.BLOCK)):
        fs = storage.slow_storage(folder, INSTANT, cache_mb=cache_mb)
        with fs.open("pulses.npy") as file:
            for block in range(3):
                file.seek(block * storage.BLOCK)
                assert len(file.read(1_000)) == 1_000
        counters = fs.counters()
        assert (counters.requests, counters.bytes_used) == (3, 3_000)
        assert counters.bytes_read == bytes_read


def test_vector_read_gets_many_ranges_of_a_file_with_one_request(folder):
    whole = (folder / "pulses.npy").read_bytes()
    paths = ["pulses.npy"] * 5 + ["sub/lines.csv"]
    starts, ends = [0, 500, 300, 9_000, len(whole) - 3, 1], [10, 600, 300, 9_900, 10**9, 5]
    wanted = [(folder / p).read_bytes()[a:b] for p, a, b in zip(paths, starts, ends, strict=True)]
    for ranges, requests in ((1, 5), (2, 4), (1024, 2)):  # the third range is empty
        fs = storage.slow_storage(folder, replace(INSTANT, ranges=ranges, cache_mb=0))
        assert fs.cat_ranges(paths, starts, ends) == wanted
        assert fs.counters().requests == requests
    before = fs.counters()
    assert fs.cat_file("pulses.npy", 500, 600) == wanted[1]
    assert (fs.counters().opens, fs.counters().requests) == (before.opens, before.requests + 1)


def test_counting_storage_counts_each_read_but_not_readahead(folder):
    counting = storage.counting_storage(folder)
    clock = storage.VirtualClock(counting)
    for _ in range(2):
        with counting.open("pulses.npy") as file:
            assert len(file.read(60)) == 60
    counted = counting.counters()
    assert (counted.opens, counted.requests, counted.bytes_read) == (2, 2, 120)
    with counting.open("pulses.npy", cache_type="readahead", block_size=100_000) as file:
        for _ in range(10):
            file.read(1_000)
    assert counting.counters().requests == 3
    assert clock.waited == 0


def test_names_are_returned_as_requested_and_an_interrupt_is_no_answer(folder, fs, monkeypatch):
    assert fs.ls("", detail=False) == ["event.npz", "pulses.npy", "sub"]
    assert fs.ls(folder / "sub", detail=False) == [(folder / "sub" / "lines.csv").as_posix()]
    assert fs.find("") == ["event.npz", "pulses.npy", "sub/lines.csv"]
    assert fs.exists("sub/lines.csv")
    assert not fs.exists("nothing")
    assert fs.counters().lookups > 0
    monkeypatch.setattr(fs.device, "look_up", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fs.exists("nothing")


def test_pickled_copy_shares_counters_and_cache_but_not_of_a_changed_file(folder, fs):
    storage.slow_storage(folder, INSTANT).cat_file("pulses.npy")
    pickle.loads(pickle.dumps(fs)).cat_file("pulses.npy")
    fs.cat_file("pulses.npy")
    assert (fs.counters().opens, fs.counters().hit_share) == (2, 0.5)
    with fs.open("pulses.npy") as file:
        file.seek(1)
        with pickle.loads(pickle.dumps(file)) as copy:
            assert copy.read(5) == file.read(5) == b"NUMPY"
    hits = fs.counters().hits
    (folder / "new.npy").write_bytes(b"new")
    (folder / "new.npy").replace(folder / "pulses.npy")
    assert fs.cat_file("pulses.npy") == b"new"
    assert fs.counters().hits == hits


def test_invalid_arguments_are_reported_with_a_next_step(tmp_path, fs):
    for make in (storage.slow_storage, storage.counting_storage):
        with pytest.raises(FileNotFoundError, match=r"none\. Create the data first"):
            make(tmp_path / "none")
    with pytest.raises(ValueError, match="Choose one of laptop SSD, HDD, NFS, busy Lustre, S3"):
        storage.slow_storage(tmp_path, "floppy")
    with pytest.raises(ValueError, match="must be at least 0"):
        storage.slow_storage(tmp_path, cache_mb=-1)
    with pytest.raises(ValueError, match=r"fs = slow_storage\(folder\)"):
        storage.SlowFileSystem()
    with pytest.raises(ValueError, match="Open a file under"):
        fs.open("../elsewhere")
    with pytest.raises(FileNotFoundError, match=r"none\.npy"):
        fs.open("none.npy")
    for write in (lambda: fs.open("new", "wb"), lambda: fs.rm("pulses.npy"), lambda: fs.mkdir("a")):
        with pytest.raises(io.UnsupportedOperation, match=r"is read-only\. Write to"):
            write()


def test_trace_names_the_emulation_even_for_open_files(fs):
    with fs.open("pulses.npy") as file, record() as trace:
        file.read(1)
    assert trace.note == "emulated busy Lustre"
