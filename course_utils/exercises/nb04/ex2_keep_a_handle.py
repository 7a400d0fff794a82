"""Exercise 04.2: a dataset on an open file, in real workers."""

import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import compare, short
from course_utils.exercises.judging.probes import memory_of
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_a_class,
    refuse,
    right,
)

FILE = "rows-04.2"  # part of the names of both files
ROW = 8  # int64 in a row of the file
ROWS = 16_384  # more than a buffer of Python holds
SERVED = 400  # rows that workers read
_LAZY = (
    "Open the file on first use. Keep it with the os.getpid() that opened it, and open it again in "
    "another process."
)
_LEAVE_OUT = '{**self.__dict__, "_file": None, "_opened_by": None}'


@exercise("04.2", title="A handle that survives fork and spawn", seconds=120)
def keep_a_handle(dataset_class: Callable[[str], Any]) -> Verdict:
    """Read rows here and in workers of each kind; count wrong rows, and opens by process."""
    expect_a_class(dataset_class, "a dataset", "creates its own dataset on a separate file")
    methods = multiprocessing.get_all_start_methods()
    if "forkserver" in methods:  # forkserver sends the dataset as spawn does
        methods = [one for one in methods if one != "spawn"]
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        one, two = (str(Path(folder) / f"{FILE}-{name}.bin") for name in ("one", "two"))
        rows = np.random.default_rng().integers(-(2**62), 2**62, size=(ROWS, ROW))
        rows.tofile(one)
        rows[::-1].tofile(two)
        _listen()
        dataset = dataset_class(one)
        sent = _sent(dataset)
        _judge_rows(dataset, rows)
        sent += _judge_copy(dataset, rows)
        other, *memory = memory_of(lambda: _read_all(dataset_class(two)))
        expect(
            max(*memory, len(sent) // 2) < rows.nbytes // 2,
            f"The file has {rows.nbytes:,} bytes, and the dataset keeps or sends most of them. "
            "This is impossible for a file of 1 TB, and each worker would have its own copy.",
            "Keep the path, and read one row when it is needed. Do not pickle a memory map.",
        )
        _judge_two(dataset, other, rows)
        for method in methods:
            _judge_in_workers(dataset, method, rows)
        _close(dataset)
        _close(other)
    return right(
        f"{SERVED} rows by 2 workers under {' and '.join(methods)}: all are right, and every "
        "worker opened the file once for itself, although the notebook had used the dataset before."
    )


def _judge_rows(dataset: Any, rows: Any) -> None:
    before = len(_opened)
    _compare(dataset, rows, (7, 0, ROWS - 1, 7, 3))
    compare(len, lambda _: ROWS, [dataset], show=lambda _: "len(dataset)")
    compare(
        lambda count: [_row(dataset, index) for index in range(count)],
        lambda count: list(rows[:count]),
        [64],
        show=lambda count: f"a list of the first {count} rows",
    )
    _expect_opens(len(_opened) - before, 1, "The notebook", "while it read 69 rows")
    try:
        beyond = dataset[ROWS]
    except Exception:  # any error ends a loop over the dataset
        return
    refuse(
        f"dataset[{ROWS}] returns {short(beyond)}, but the file has {ROWS} rows. A loop over the "
        "dataset would never end.",
        "Raise IndexError(index) if nothing is left to read.",
    )


def _judge_copy(dataset: Any, rows: Any) -> bytes:
    """Judge a copy in this process, and whether the dataset itself survives the pickling."""
    before, sent = len(_opened), _sent(dataset)
    _compare(dataset, rows, [5])
    expect(
        len(_opened) == before,
        "Sending the dataset closes the notebook's file, which must then be opened again.",
        f"Change nothing in self. Let __getstate__ return a new dict: {_LEAVE_OUT}.",
    )
    copy = pickle.loads(sent)
    try:
        copy[7]
    except (AttributeError, TypeError) as error:
        refuse(
            f"A copy in the same process cannot read ({error}). The process ID was pickled with "
            "it, so the copy treats the file as already open.",
            f"Leave both out: {_LEAVE_OUT}.",
        )
    _compare(copy, rows, [7])
    _close(copy)
    return sent


def _judge_two(dataset: Any, other: Any, rows: Any) -> None:
    """Read from two files alternately, as ConcatDataset does with shuffling."""
    before = len(_opened)
    for index in range(20):
        _compare(dataset, rows, [index])
        _compare(other, rows[::-1], [index], "a second dataset on another file")
    _expect_opens(len(_opened) - before, 0, "The notebook", "while it read two files alternately")


def _judge_in_workers(dataset: Any, method: str, rows: Any) -> None:
    _compare(dataset, rows, [ROWS - 1])
    before = _handles()
    batches = loader(_Watched(dataset), batch_size=10, multiprocessing_context=method)
    opens, own, wrong = dict[int, int](), True, 0
    for index, (row, worker, opened, new) in enumerate(one for batch in batches for one in batch):
        opens[worker], own = opened, own and new
        wrong += not np.array_equal(row, rows[index])
    # Python may not report what a library opens, so check whether the notebook's position moved
    shared = method == "fork" and not min(opens.values()) and not (own and before == _handles())
    expect(
        not (shared or wrong),
        f"Under {method}, a worker did not open the file. It read through the handle of the "
        f"notebook, and {wrong} of {SERVED} rows were wrong. Processes that share a handle share "
        "its position, and HDF5 and SQLite need one handle each.",
        _LAZY,
    )
    most, served = max(opens.values()), f"for {SERVED // 2} rows"
    _expect_opens(most, 1, f"Under {method}, a worker", served)


def _expect_opens(opens: int, most: int, who: str, when: str) -> None:
    expect(
        opens <= most,
        f"{who} opened the file {opens} times {when}. On a file server, each opening is a request "
        "to a server that all users share.",
        "Keep the file open between the rows, in self: one opening for each process and dataset.",
    )


def _compare(dataset: Any, rows: Any, indices: Iterable[int], file: str = "dataset") -> None:
    compare(
        lambda index: _row(dataset, index),
        rows.__getitem__,
        indices,
        show=lambda index: f"{file}[{index}]",
    )


def _row(dataset: Any, index: int) -> Any:
    row = dataset[index]
    return row.numpy() if isinstance(row, torch.Tensor) else row


def _sent(dataset: Any) -> bytes:
    try:
        return pickle.dumps(dataset)
    except (TypeError, AttributeError, RuntimeError, pickle.PicklingError) as error:
        if not any(word in str(error) for word in ("pickle", "local object", "inheritance")):
            raise
        refuse(
            f"The dataset cannot be sent to a worker: {error}.",
            "Keep only what can be pickled: no lambda and no lock. Open the file on first use, and "
            f"let __getstate__ leave it out: {_LEAVE_OUT}.",
        )


def _read_all(dataset: Any) -> Any:
    for index in range(ROWS):
        dataset[index]
    return dataset


def _close(dataset: Any) -> None:
    """Close the files of a dataset, because some systems cannot delete an open file."""
    for value in getattr(dataset, "__dict__", {}).values():
        if hasattr(value, "close"):
            value.close()


_opened: list[str] = []  # files that this process opened since `_listen`


@cache
def _listen() -> None:
    """Start to record every opening of our files by Python."""

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        name = arguments[0] if event == "open" else None
        if isinstance(name, str | bytes) and FILE in os.fsdecode(name):
            _opened.append(os.fsdecode(name))

    sys.addaudithook(hear)  # forever, because Python cannot remove a hook


def _handles() -> dict[str, str]:
    """Return our open files with their positions, and our memory maps; empty except on Linux."""
    found = {}
    with suppress(OSError):
        for file in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the folder itself is open for a moment
                if FILE in os.readlink(file):
                    found[file.name] = Path(f"/proc/self/fdinfo/{file.name}").read_text()
        maps = Path("/proc/self/maps").read_text().splitlines()
        found |= {line.split()[0]: "map" for line in maps if FILE in line}
    return found


class _Watched:
    """Return each row with its process, how often that opened a file, and if it opened any."""

    def __init__(self, dataset: Any):
        self.dataset, self.before = dataset, -1

    def __len__(self) -> int:
        return SERVED

    def __getitem__(self, index: int) -> tuple[Any, int, int, bool]:
        if self.before < 0:
            _listen()
            # a forked worker starts with the files of the notebook
            self.before, self.handles = len(_opened), _handles()
        row = np.array(self.dataset[index])
        opened = len(_opened) - self.before
        return row, os.getpid(), opened, bool(opened or _handles().keys() - self.handles.keys())
