"""Exercise 04.3: a dataset on an open file, in real workers."""

import multiprocessing
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

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
        expect(
            np.array_equal(np.asarray(dataset[index]), np.full(ROW, index)),
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


def _judge_in_workers(dataset: Any, path: str, method: str) -> None:
    batches = loader(
        _Watched(dataset),
        batch_size=BATCH,
        worker_init_fn=_CountOpens(path),
        multiprocessing_context=method,
    )
    rows, opens, wrong = Counter[int](), dict[int, int](), 0
    for index, (row, worker, opened) in enumerate(one for batch in batches for one in batch):
        rows[worker] += 1
        opens[worker] = opened
        wrong += not np.array_equal(row, np.full(ROW, index))
    expect(
        min(opens.values()) > 0,
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


class _Watched:
    """Beside each row, note the process that read it and how often that had opened the file."""

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> tuple[Any, int, int]:
        row = np.array(self.dataset[index])
        return row, os.getpid(), _CountOpens.opens


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
