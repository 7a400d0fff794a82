"""Exercise 04.3: a dataset on an open file, in real workers."""

import multiprocessing
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_a_class,
    expect_in_a_file,
    right,
)
from notebooks.exercises.judging import loader

ROW = 8  # int64 in a row of the file
ROWS = 400
BATCH = 10

_LAZY = (
    "Open on first use: keep the file and the os.getpid() that opened it, and open again if the "
    "process is another one."
)


@exercise("04.3", title="A handle that survives fork and spawn", seconds=150)
def keep_a_handle(dataset_class: Callable[[str], Any]) -> Verdict:
    """Read rows in workers under every start method; count wrong rows, and opens by process."""
    expect_a_class(dataset_class, "a dataset", "builds its own on a file of its own")
    expect_in_a_file(dataset_class)
    methods = multiprocessing.get_all_start_methods()
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = str(Path(folder) / "rows.bin")
        np.repeat(np.arange(ROWS, dtype=np.int64), ROW).tofile(path)
        dataset = dataset_class(path)
        _judge_here(dataset, path)
        for method in methods:
            _judge_in_workers(dataset, path, method)
        _close(dataset)
    return right(
        f"{ROWS} rows by 2 workers under {' and '.join(methods)}: none wrong, and every worker "
        "opened the file once for itself, although the notebook had used the dataset before."
    )


def _judge_here(dataset: Any, path: str) -> None:
    """Judge the rows in this process, and whether the dataset can be sent before and after."""
    _expect_picklable(
        dataset,
        "It cannot be sent to a worker: an open file has no pickle. Under spawn and forkserver "
        "this is an error at once; under fork the handle is shared, and rows come out wrong.",
        "Open nothing in __init__; keep the path.",
    )
    for index in (7, 0, ROWS - 1, 7):
        row = _as_row(dataset[index])
        expect(
            row is not None and np.array_equal(row, np.full(ROW, index)),
            f"dataset[{index}] is {dataset[index]!r}; wanted are the {ROW} numbers of that row.",
            f"A row is {ROW} numbers of 8 bytes: seek to {8 * ROW} * index, then read {8 * ROW}.",
        )
    expect(
        len(dataset) == ROWS,
        f"len(dataset) is {len(dataset)}, the file has {ROWS} rows.",
        f"os.path.getsize(path) // {8 * ROW} counts them without opening the file.",
    )
    _expect_picklable(
        dataset,
        "Once the notebook has looked at a row, the dataset cannot be sent any more: it holds an "
        "open file now.",
        "Leave the file out on the way to a worker: write __getstate__, which returns what is to "
        "be sent, {**self.__dict__, ...} with None for the file.",
    )


def _expect_picklable(dataset: Any, misconception: str, next_step: str) -> None:
    try:
        pickle.dumps(dataset)
    except (TypeError, pickle.PicklingError) as error:
        expect("pickle" not in str(error), misconception, next_step)
        raise


def _as_row(value: Any) -> NDArray[Any] | None:
    row = np.asarray(value)
    return row if row.shape == (ROW,) else None


def _judge_in_workers(dataset: Any, path: str, method: str) -> None:
    seen = _read_all(dataset, path, method)
    wrong = sum(not np.array_equal(one.row, np.full(ROW, index)) for index, one in enumerate(seen))
    rows, opens = Counter(one.pid for one in seen), Counter[int]()
    for one in seen:
        opens[one.pid] = max(opens[one.pid], one.opens)
    expect(
        min(opens[pid] for pid in rows) > 0,
        f"Under {method} a worker opened nothing: it read through the handle that the notebook had "
        f"open when the worker started. They share one position in the file; {wrong} rows were "
        "wrong this time, which nobody would notice.",
        _LAZY,
    )
    most = max(opens.values())
    expect(
        most <= 2,
        f"Under {method} a worker opened the file {most} times for {max(rows.values())} rows. On "
        "a file server each opening is a request to a server that all users share.",
        "Keep the file open between the rows; one opening for each process.",
    )
    expect(
        wrong == 0,
        f"Under {method} {wrong} of {ROWS} rows have the numbers of another row.",
        _LAZY,
    )


@dataclass(frozen=True)
class _Seen:
    """A row, the process that read it, and how often that had opened the file."""

    row: Any
    pid: int
    opens: int


def _read_all(dataset: Any, path: str, method: str) -> Sequence[_Seen]:
    batches = loader(
        _Watched(dataset),
        batch_size=BATCH,
        worker_init_fn=_CountOpens(path),
        multiprocessing_context=method,
    )
    return [one for batch in batches for one in batch]


class _Watched:
    """Note beside each row which process read it."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> _Seen:
        row = np.array(self.dataset[index])
        return _Seen(row, os.getpid(), _CountOpens.opens)


class _CountOpens:
    """Count in a worker how often a file is opened, in whatever way Python opens files."""

    opens = 0

    def __init__(self, path: str):
        self.path = path

    def __call__(self, _worker: int) -> None:
        sys.addaudithook(self._hear)  # the worker ends soon, and the hook with it

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]) == self.path:
            _CountOpens.opens += 1


def _close(dataset: Any) -> None:
    """Close what the dataset holds open, so that its file can be deleted on any system."""
    for value in list(getattr(dataset, "__dict__", {}).values()):
        if hasattr(value, "close"):
            value.close()
