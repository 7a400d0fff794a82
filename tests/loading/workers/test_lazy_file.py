"""Files that every process opens for itself."""

from __future__ import annotations

import gc
import os
import pickle
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from torch.utils.data import DataLoader

from course_utils import forks
from course_utils.loading.workers import LazyFile
from tests.loading.workers.worker_datasets import Opened, first, read_any


def plain(folder: Path) -> LazyFile[Any]:
    (folder / "numbers.bin").write_bytes(bytes([0, 1, 2]))
    return LazyFile(open, folder / "numbers.bin", "rb")


def hdf5(folder: Path) -> LazyFile[Any]:
    with h5py.File(folder / "numbers.h5", "w") as file:
        file["numbers"] = [0, 1, 2]
    return LazyFile(h5py.File, folder / "numbers.h5", "r")


def database(folder: Path) -> LazyFile[Any]:
    with closing(sqlite3.connect(folder / "numbers.db")) as connection, connection:
        connection.execute("create table numbers (number integer)")
        connection.executemany("insert into numbers values (?)", [(0,), (1,), (2,)])
    return LazyFile(sqlite3.connect, folder / "numbers.db")


def memory_map(folder: Path) -> LazyFile[Any]:
    np.save(folder / "numbers.npy", np.arange(3))
    return LazyFile(np.load, folder / "numbers.npy", mmap_mode="r")


KINDS = [plain, hdf5, database, memory_map]


@pytest.mark.parametrize("kind", KINDS)
def test_it_opens_on_first_use_stays_open_and_is_sent_without_the_open_file(
    kind: Any, tmp_path: Path
) -> None:
    lazy = kind(tmp_path)
    for _ in range(2):
        assert lazy._file is None
        assert read_any(lazy.file) == [0, 1, 2]
        assert lazy.file is lazy.file
        sent = pickle.dumps(lazy)
        assert len(sent) < 500
        assert read_any(pickle.loads(sent).file) == [0, 1, 2]
        lazy.close()
        lazy.close()


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
    assert list(loader) == [(True, [0, 1, 2])] * len(KINDS)
    assert [read_any(file) for file in before] == [[0, 1, 2]] * len(KINDS)


def test_what_is_forgotten_is_closed_and_what_is_a_parents_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = plain(tmp_path)
    of_parent = lazy.file
    monkeypatch.setattr(forks, "_of_parent", kept := [])
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -7)
        own = lazy.file
        assert own is not of_parent
        del lazy
        gc.collect()
    assert own.closed
    assert not of_parent.closed
    assert kept == [of_parent]
    of_parent.close()


def test_an_error_at_opening_is_that_of_the_opener_and_leaves_it_closed(tmp_path: Path) -> None:
    lazy = LazyFile(open, tmp_path / "none", "rb")
    with pytest.raises(FileNotFoundError):
        _ = lazy.file
    (tmp_path / "none").write_bytes(b"")
    assert lazy.file.read() == b""


def test_what_no_worker_could_open_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with (tmp_path / "x").open("w") as file:
        for opener in (file, lambda: 1):
            with pytest.raises(TypeError, match=r"outside of any other function, and its argument"):
                LazyFile(opener)  # type: ignore[arg-type]
