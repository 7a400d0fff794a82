"""Exercise 04.2: a dataset on an open file, in real workers."""

import mmap
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from course_exercises.judging import loader
from course_utils.hardware.gpu import leaves
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from keepfed.loaders.workers import nbytes

FILE = "rows-04.2.bin"
ROW = 8  # int64 in a row of the file
ROWS = 400
BATCH = 10

_SHARED = "All processes share its one position in the file."
_UNMOVED = (
    "A memory map and os.pread have no position to share, so no row is wrong here; but the target "
    "asks each process to open the file, as HDF5 and SQLite need it."
)
_LAZY = (
    "Open on first use: keep the file and the os.getpid() that opened it, and open again if the "
    "process is another one."
)


@exercise("04.2", title="A handle that survives fork and spawn", seconds=150)
def keep_a_handle(dataset_class: Callable[[str], Any]) -> Verdict:
    """Read rows in workers under every start method; count wrong rows, and opens by process."""
    expect_a_class(dataset_class, "a dataset", "builds its own on a file of its own")
    methods = multiprocessing.get_all_start_methods()
    if "forkserver" in methods:  # which sends the dataset just as spawn does
        methods = [one for one in methods if one != "spawn"]
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / FILE)
        rows = np.random.default_rng().integers(-(2**62), 2**62, size=(ROWS, ROW))
        rows.tofile(path)
        dataset = dataset_class(path)
        _judge_here(dataset, rows)
        _judge_copies(dataset, rows)
        for method in methods:
            _judge_in_workers(dataset, method, rows)
        other = Path(folder) / "other.bin"
        rows[::-1].tofile(other)
        _judge_two(dataset, dataset_class(str(other)), rows)
    return right(
        f"{ROWS} rows by 2 workers under {' and '.join(methods)}: none wrong, and every worker "
        "opened the file once for itself, although the notebook had used the dataset before."
    )


def _judge_here(dataset: Any, rows: Any) -> None:
    """Judge the rows in this process, and how the dataset is sent before and after."""
    _expect_light(
        dataset,
        "It cannot be sent to a worker",
        "Open nothing in __init__, keep the path. Under fork nothing is sent, but the handle is "
        "shared, and rows come out wrong. A file that nobody shares needs no lock.",
    )
    _listen()
    before, asked = len(_opened), (7, 0, ROWS - 1, 7, 3)
    for index in asked:
        found = np.asarray(dataset[index])
        expect(
            np.array_equal(found, rows[index]),
            f"dataset[{index}] begins with {found.flat[:2]!s:.80}, {found.dtype} {found.shape}; "
            f"wanted are the {ROW} numbers of that row, {rows[index][:2]} and so on.",
            f"A row is {ROW} numbers of 8 bytes: seek to {8 * ROW} * index, read {8 * ROW}, and "
            "take them as np.int64.",
        )
    opens = len(_opened) - before
    expect(
        opens <= 2,
        f"In the notebook the dataset opened the file {opens} times for {len(asked)} rows. The "
        "main process reads too, with num_workers=0.",
        "Keep the file open between the rows; one opening for each process.",
    )
    expect(
        len(dataset) == ROWS,
        f"len(dataset) is {len(dataset)}, the file has {ROWS} rows.",
        f"os.path.getsize(path) // {8 * ROW} counts them without opening the file.",
    )
    opened = list(_positions(dataset))
    _expect_light(
        dataset,
        "Once the notebook has looked at a row, the dataset cannot be sent any more",
        "Leave the file out on the way to a worker: write __getstate__, which returns what is to "
        "be sent, {**self.__dict__, ...} with None for the file.",
    )
    expect(
        opened == list(_positions(dataset)),
        "Sending the dataset takes the notebook's file away, which is opened anew each time.",
        "Change nothing in self: let __getstate__ return a new dict, {**self.__dict__, ...}.",
    )


def _judge_copies(dataset: Any, rows: Any) -> None:
    """Judge rows that are kept while others are read, and a copy of the dataset."""
    expect(
        np.array_equal([dataset[index] for index in range(ROWS)], rows),
        "A row changes when others are read: they lie in the same memory, and a batch would have "
        "its last rows again and again.",
        "Make a new array for each row: np.frombuffer(file.read(64), np.int64).",
    )
    copy = pickle.loads(pickle.dumps(dataset))
    try:
        found = copy[7]
    except (AttributeError, TypeError) as error:
        expect(
            False,
            f"A copy in the same process reads nothing ({error}): the number of the process has "
            "travelled along, so it believes that it has opened the file.",
            'Leave both out on the way: {**self.__dict__, "_file": None, "_opened_by": None}.',
        )
    expect(np.array_equal(found, rows[7]), "A copy in this process reads other rows.", _LAZY)
    _close(copy)


def _expect_light(dataset: Any, misconception: str, next_step: str) -> None:
    """Refuse what cannot be pickled, and what takes all rows along, pickled or in memory."""
    try:
        sent = len(pickle.dumps(dataset))
    except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
        known = "pickle" in str(error) or "inheritance" in str(error)  # the latter of locks
        expect(not known, f"{misconception}: {error}.", next_step)
        raise
    in_memory = [one for one in leaves(_values(dataset)) if not _looks_into_a_map(one)]
    size = 8 * ROW * ROWS
    expect(
        max(sent, nbytes(in_memory)) < size,
        f"The file has {size:,} bytes, and the dataset has read all of them: as many are kept in "
        "each process, or sent to each worker. That is no way for a file of 1 TB; and a memory map "
        "is pickled with all its data.",
        "Keep the path, and read one row when it is asked for.",
    )


def _close(dataset: Any) -> None:
    """Close what it holds open: some systems delete no file that is open."""
    for value in _values(dataset):
        if hasattr(value, "close"):
            value.close()


def _values(dataset: Any) -> list[Any]:
    return list(getattr(dataset, "__dict__", {}).values())


def _looks_into_a_map(value: Any) -> bool:
    while isinstance(value, np.ndarray | memoryview):
        value = value.base if isinstance(value, np.ndarray) else value.obj
    return isinstance(value, mmap.mmap)


def _judge_in_workers(dataset: Any, method: str, expected: Any) -> None:
    before, moved = list(_positions(dataset)), False
    for index in 0, ROWS - 1:  # whatever was read last, one of them is elsewhere
        dataset[index]
        moved |= before != list(_positions(dataset))
    maps = any(isinstance(value, np.ndarray | mmap.mmap) for value in _values(dataset))
    unmoved = not moved and (before or maps)
    batches = loader(_Watched(dataset), batch_size=BATCH, multiprocessing_context=method)
    opens, wrong = dict[int, int](), 0
    for index, (row, worker, opened) in enumerate(one for batch in batches for one in batch):
        opens[worker] = opened
        wrong += not np.array_equal(row, expected[index])
    expect(
        min(opens.values()) > 0,
        f"Under {method} a worker opened nothing: it read through what the notebook had open when "
        f"the worker started. {_UNMOVED if unmoved and not wrong else _SHARED}"
        f"{f' This time {wrong} of {ROWS} rows were wrong.' if wrong else ''}",
        _LAZY,
    )
    most = max(opens.values())
    expect(
        most <= 2,
        f"Under {method} a worker opened the file {most} times for {ROWS // 2} rows. On "
        "a file server each opening is a request to a server that all users share.",
        "Keep the file open between the rows; one opening for each process.",
    )
    expect(
        wrong == 0,
        f"Under {method} {wrong} of {ROWS} rows have the numbers of another row.",
        _LAZY,
    )


def _judge_two(dataset: Any, other: Any, rows: Any) -> None:
    """Judge two datasets on two files; the `other` file has the rows from the last to the first."""
    expect(
        np.array_equal(other[0], rows[-1]) and np.array_equal(dataset[0], rows[0]),
        "Two datasets on two files get in each other's way: one reads from the file of the other. "
        "What belongs to the class, or to the module, is there once for all datasets.",
        "Keep the file in self: self._file, self._opened_by = ..., os.getpid().",
    )
    _close(dataset)
    _close(other)


_opened: list[str] = []  # FILE, as often as this process opened it since it listens


@cache
def _listen() -> None:
    """Note from now on that FILE is opened, in whatever way Python does it."""

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        name = arguments[0] if event == "open" else None
        if isinstance(name, str | bytes) and os.path.basename(os.fsdecode(name)) == FILE:
            _opened.append(FILE)

    sys.addaudithook(hear)  # for good: Python takes none away


class _Watched:
    """Beside each row, note the process that read it and how often that had opened the file."""

    def __init__(self, dataset: Any):
        self.dataset, self.before = dataset, -1

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        if self.before < 0:
            _listen()
            self.before = len(_opened)  # a forked worker begins with those of the notebook
        return np.array(self.dataset[index]), os.getpid(), len(_opened) - self.before


def _positions(dataset: Any) -> Iterator[int]:
    """Yield where reading goes on in each file that the dataset holds open."""
    for value in _values(dataset):
        with suppress(OSError, ValueError, TypeError):
            file = value.fileno() if hasattr(value, "fileno") else value
            if isinstance(file, int) and not isinstance(file, bool):
                yield os.lseek(file, 0, os.SEEK_CUR)
