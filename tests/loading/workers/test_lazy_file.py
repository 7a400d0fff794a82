"""Files that every process opens for itself."""

from __future__ import annotations

import gc
import os
import pickle
import sqlite3
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from torch.utils.data import DataLoader

from course_utils.loading.workers import LazyFile, worker
from tests.loading.workers.worker_datasets import Numbered, Opened, first, number_file, read_any


def plain(folder: Path) -> LazyFile[Any]:
    (folder / "numbers.bin").write_bytes(bytes([0, 1, 2]))
    return LazyFile(open, folder / "numbers.bin", "rb")


def hdf5(folder: Path) -> LazyFile[Any]:
    with h5py.File(folder / "numbers.h5", "w") as file:
        file["numbers"] = [0, 1, 2]
    return LazyFile(h5py.File, folder / "numbers.h5", "r")


def database(folder: Path) -> LazyFile[Any]:
    connection = sqlite3.connect(folder / "numbers.db")
    connection.execute("create table numbers (number integer)")
    connection.executemany("insert into numbers values (?)", [(0,), (1,), (2,)])
    connection.commit()
    connection.close()
    return LazyFile(sqlite3.connect, folder / "numbers.db")


def memory_map(folder: Path) -> LazyFile[Any]:
    np.save(folder / "numbers.npy", np.arange(3))
    return LazyFile(np.load, folder / "numbers.npy", mmap_mode="r")


def raw_memory_map(folder: Path) -> LazyFile[Any]:
    np.arange(3, dtype=np.int64).tofile(folder / "numbers.raw")
    return LazyFile(np.memmap, folder / "numbers.raw", dtype=np.int64, mode="r")


KINDS = [plain, hdf5, database, memory_map, raw_memory_map]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def lazy(request: pytest.FixtureRequest, tmp_path: Path) -> LazyFile[Any]:
    made: LazyFile[Any] = request.param(tmp_path)
    return made


def test_it_opens_on_first_use_stays_open_and_opens_again_after_it_was_closed(
    lazy: LazyFile[Any],
) -> None:
    for _ in range(2):
        assert repr(lazy).endswith("not open in this process")
        assert read_any(lazy.file) == [0, 1, 2]
        assert lazy.file is lazy.file
        assert repr(lazy).endswith(", open in this process")
        lazy.close()
        lazy.close()


def test_it_is_sent_without_the_open_file(lazy: LazyFile[Any]) -> None:
    assert read_any(lazy.file) == [0, 1, 2]
    sent = pickle.dumps(lazy)
    assert len(sent) < 500
    assert read_any(pickle.loads(sent).file) == [0, 1, 2]


@pytest.mark.slow
def test_a_worker_opens_its_own_after_the_parent_has(tmp_path: Path, start_method: str) -> None:
    files = [kind(tmp_path) for kind in KINDS]
    before = [lazy.file for lazy in files]
    loader = DataLoader(
        Opened(files),
        num_workers=1,
        collate_fn=first,
        multiprocessing_context=start_method,
        timeout=120,
    )
    assert list(loader) == [(False, True, [0, 1, 2])] * len(KINDS)
    assert [read_any(file) for file in before] == [[0, 1, 2]] * len(KINDS)


def test_what_is_forgotten_is_closed(tmp_path: Path) -> None:
    lazy = plain(tmp_path)
    file = lazy.file
    del lazy
    gc.collect()
    assert file.closed


def test_the_handle_of_a_parent_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = plain(tmp_path)
    of_parent = lazy.file
    monkeypatch.setattr(worker, "_inherited", kept := [])
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -7)
        own = lazy.file
        assert own is not of_parent
        lazy.close()
    assert own.closed
    assert not of_parent.closed
    assert kept == [of_parent]
    of_parent.close()


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
@pytest.mark.slow
def test_two_forked_workers_read_no_rows_of_each_other(tmp_path: Path) -> None:
    rows = LazyFile(open, number_file(tmp_path / "rows.bin"), "rb", buffering=0)
    _ = rows.file
    loader = DataLoader(
        Numbered(rows), batch_size=20, num_workers=2, multiprocessing_context="fork", timeout=120
    )
    assert [int(row) for batch in loader for row in batch] == list(range(2000))


def test_an_error_at_opening_is_that_of_the_opener_and_leaves_it_closed(tmp_path: Path) -> None:
    lazy = LazyFile(open, tmp_path / "none", "rb")
    with pytest.raises(FileNotFoundError):
        _ = lazy.file
    (tmp_path / "none").write_bytes(b"")
    assert lazy.file.read() == b""


def test_what_no_worker_could_open_is_refused_with_what_to_give(tmp_path: Path) -> None:
    file: Any = (tmp_path / "x").open("w")
    with file, pytest.raises(TypeError, match=r"give it the function and its arguments"):
        LazyFile(file)
    with pytest.raises(TypeError, match="outside of any other function"):
        LazyFile(lambda: 1)
