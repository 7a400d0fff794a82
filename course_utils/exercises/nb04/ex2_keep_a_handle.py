"""Exercise 04.2: a dataset on an open file, in real workers.

The check replaces the file while it is in use. Whoever keeps it open still reads the old rows, and
whoever opens it reads the new ones, in any language and on any system.
"""

import multiprocessing
import os
import pickle
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import get_worker_info

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import compare
from course_utils.exercises.judging.probes import memory_of
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_a_class,
    refuse,
    right,
)

Rows = NDArray[np.int64]

ROW = 8  # int64 in a row of the file
ROWS = 16_384  # more than a buffer of Python holds
SERVED, EARLY = 40, 5  # rows that workers read, and how many before the file is replaced
_OPEN_ONCE = (
    "Open the file on first use. Keep it in self, with the os.getpid() that opened it, and open it "
    "again in another process only."
)
_LEAVE_OUT = '{**self.__dict__, "_file": None, "_opened_by": None}'


@exercise("04.2", title="A handle that survives fork and spawn", seconds=120)
def keep_a_handle(dataset_class: Callable[[str], Any]) -> Verdict:
    """Read rows here and in workers of each kind, and see who opened the file, and when."""
    expect_a_class(dataset_class, "a dataset", "creates its own dataset on a separate file")
    methods: list[str] = [*multiprocessing.get_all_start_methods()]
    if "forkserver" in methods:
        methods.remove("spawn")  # forkserver sends the dataset as spawn does
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        one, two = (_HiddenFile(Path(folder, name)) for name in ("one.bin", "two.bin"))
        dataset = dataset_class(str(one.path))
        sent = _sent(dataset)
        _compare(dataset, one.rows, (7, 0, ROWS - 1, 7, 3))
        compare(len, lambda _: ROWS, [dataset], show=lambda _: "len(dataset)")
        _expect_kept_open(dataset, one, "between two rows")
        sent += _sent(dataset)
        _expect_kept_open(dataset, one, "after the dataset was sent to a worker")
        row = pickle.loads(_sent(dataset))[7]  # even in the same process, a copy opens the file
        _compare([row], one.rows[7:] + (one.version_of(row, 7) or 0), [0], "copy")
        _judge_memory(dataset_class, two, len(sent))
        other = dataset_class(str(two.path))
        for when in "for the first time", "between two rows":  # as ConcatDataset does
            for index in range(20):
                _compare(dataset, one.rows, [index])
                _compare(other, two.rows, [index], "a second dataset on another file")
            _expect_kept_open(dataset, one, f"while two files were read alternately, {when}")
        for method in methods:
            _judge_workers(dataset, method, one)
        for value in (*vars(dataset).values(), *vars(other).values()):
            getattr(value, "close", bool)()
    return right(
        f"{SERVED} rows by 2 workers under {' and '.join(methods)}: all are right, and every "
        "worker opened the file once for itself, although the notebook had used the dataset before."
    )


class _HiddenFile:
    """A file of random rows. A newer version of it has the same rows, plus the version."""

    def __init__(self, path: Path):
        self.path, self.version = path, 0
        self.rows: Rows = np.random.default_rng().integers(-(2**61), 2**61, size=(ROWS, ROW))
        self.rows.tofile(path)

    def renew(self) -> int:
        """Replace the file by a newer version, and return which."""
        self.version += 1
        new = self.path.with_suffix(f".{self.version}")
        (self.rows + self.version).tofile(new)
        _replace(new, self.path)
        return self.version

    def version_of(self, row: Rows, index: int) -> int | None:
        """Return from which version of the file a row is; None if it is another row."""
        version = int(np.asarray(row)[0] - self.rows[index, 0])
        return version if np.array_equal(row, self.rows[index] + version) else None


def _replace(new: Path, old: Path) -> None:
    own = new.with_suffix(f".{os.getpid()}")
    shutil.copyfile(new, own)
    with suppress(PermissionError):  # Windows keeps a file that somebody has open
        own.replace(old)


def _expect_kept_open(dataset: Any, file: _HiddenFile, when: str) -> None:
    file.renew()
    expect(
        file.version_of(dataset[9], 9) != file.version,
        f"The notebook opens the file again {when}. On a file server, each opening is a request to "
        "a server that all users share.",
        f"{_OPEN_ONCE} Let __getstate__ return a new dict: {_LEAVE_OUT}.",
    )


def _judge_memory(dataset_class: Callable[[str], Any], file: _HiddenFile, sent: int) -> None:
    _, *memory = memory_of(lambda: _read_all(dataset_class(str(file.path))))
    expect(
        max(*memory, sent // 2) < file.rows.nbytes // 2,
        f"The file has {file.rows.nbytes:,} bytes, and the dataset reads, keeps or sends most of "
        "them. This is impossible for a file of 1 TB, and each worker would have its own copy.",
        "Keep the path, and read one row when it is needed. Do not pickle a memory map.",
    )


def _read_all(dataset: Any) -> Any:
    for index in range(0, ROWS, 2):
        dataset[index]
    return dataset


def _judge_workers(dataset: Any, method: str, file: _HiddenFile) -> None:
    fresh = file.renew()  # a worker that opens the file finds this version, or a newer one
    newer = file.path.with_suffix(".newer")
    (file.rows + fresh + 1).tofile(newer)
    watched = _Renewing(dataset, newer, file.path)
    batches = loader(watched, batch_size=EARLY, multiprocessing_context=method)
    served = [pair for batch in batches for pair in batch]
    versions = [(id_, file.version_of(row, n)) for n, (id_, row) in enumerate(served)]
    wrong = sum(version is None for _, version in versions)
    expect(
        all(version is not None and version >= fresh for _, version in versions),
        f"Under {method}, a worker did not open the file, but read through the handle of the "
        f"notebook. This time, {wrong} of {SERVED} rows were other rows. Processes that share a "
        "handle share its position, and HDF5 and SQLite need one handle each.",
        _OPEN_ONCE,
    )
    expect(
        len(set(versions)) == 2,
        f"Under {method}, a worker opens the file again between two rows. On a file server, each "
        "opening is a request to a server that all users share.",
        _OPEN_ONCE,
    )
    file.version = fresh + 1


class _Renewing:
    """A dataset whose file is replaced by each worker after some rows."""

    def __init__(self, dataset: Any, newer: Path, file: Path):
        self.dataset, self.newer, self.file, self.count = dataset, newer, file, 0

    def __len__(self) -> int:
        return SERVED

    def __getitem__(self, index: int) -> tuple[int, Rows]:
        if self.count == EARLY:
            _replace(self.newer, self.file)
        self.count += 1
        info = get_worker_info()
        return info.id if info else 0, np.array(self.dataset[index])


def _compare(dataset: Any, rows: Rows, indices: Iterable[int], name: str = "dataset") -> None:
    def row(index: int) -> Any:
        found = dataset[index]
        return found.numpy() if isinstance(found, torch.Tensor) else found

    compare(row, rows.__getitem__, indices, show=lambda index: f"{name}[{index}]")


def _sent(dataset: Any) -> bytes:
    try:
        return pickle.dumps(dataset)
    except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
        refuse(
            f"The dataset cannot be sent to a worker: {error}. A worker gets a pickled copy, but "
            "an open file, a lock or a lambda cannot be pickled.",
            f"Let __getstate__ return the rest: {_LEAVE_OUT}.",
        )
