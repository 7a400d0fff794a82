"""Demonstrations: loops that hang or die. Call each in a process of its own."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.loading.workers import worker_init
from notebooks.stories.worker_traps.traps import QUICK, Numbers


def outcome(loader: DataLoader[Any]) -> Numbers:
    """Run an epoch; how many batches came, and the first line of what went wrong."""
    numbers: Numbers = {"batches": 0, "error": "none"}
    start = time.perf_counter()
    try:
        try:
            for _ in loader:
                numbers["batches"] += 1
        except Exception as caught:
            numbers["error"] = _first_line(caught)
    except RuntimeError as late:  # the news of a dead worker interrupts whatever runs just then
        numbers["error"] = _first_line(late)
    return {**numbers, "seconds": round(time.perf_counter() - start, 1)}


def _first_line(error: BaseException) -> str:
    while error.__cause__ and str(error.__cause__):  # "exited unexpectedly" has a signal as cause
        error = error.__cause__
    return (str(error) or type(error).__name__).splitlines()[0].strip()


class Crashing(Dataset[int]):
    """Reads from address 0 at sample 20, as a faulty library does."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> int:
        if index == 20:
            ctypes.string_at(0)
        return index


def crash(mended: bool) -> Numbers:
    """Let a worker crash; with `worker_init` it prints the line before it dies."""
    return outcome(
        DataLoader(
            Crashing(),
            batch_size=None,  # numbers; a tensor would have to be fetched from the dead
            num_workers=1,
            worker_init_fn=worker_init if mended else None,
            multiprocessing_context=QUICK,
        )
    )


class Multiplying(Dataset[torch.Tensor]):
    """Multiplies matrices with two threads of OpenMP."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        torch.set_num_threads(2)
        return multiply()


def multiply() -> torch.Tensor:
    """Multiply matrices that are large enough for several threads."""
    matrix = torch.ones(512, 512)
    return (matrix @ matrix).sum()


def openmp(mended: bool) -> Numbers:
    """Compute with two threads, then in a worker: by fork, or by a method that copies no pool."""
    torch.set_num_threads(2)
    multiply()
    return outcome(
        DataLoader(
            Multiplying(),
            num_workers=1,
            timeout=30 if mended else 2,
            multiprocessing_context="spawn" if mended else "fork",
        )
    )


class Failing(Dataset[int]):
    """Fails at sample 2, until it is told not to."""

    def __init__(self, fails: bool):
        self.fails = fails

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if self.fails and index == 2:
            raise ValueError("sample 2 is broken")
        if index == 4:
            gc.collect()  # sooner or later Python does this by itself
        return index


def old_loop(mended: bool) -> Numbers:
    """Leave a failed loop as garbage before the next one forks, or clear it away."""
    gc.disable()  # so that it is still there, as it may be by chance
    failed: Any = iter(DataLoader(Failing(True), num_workers=1, multiprocessing_context="fork"))
    try:
        list(failed)
    except ValueError as error:
        failed.error = error  # a circle, since an error holds the frames that hold the loop
    del failed
    if mended:
        gc.collect()
    return outcome(DataLoader(Failing(False), num_workers=1, multiprocessing_context="fork"))


class InNotebook(list[int]):
    """A dataset, as if a cell had defined it."""


def class_in_notebook(mended: bool) -> Numbers:
    """Spawn a worker for a class of the notebook, or for one that any Python can import."""
    notebook = sys.modules["__main__"]
    for name in ("__file__", "__spec__"):  # a notebook has no file that a worker could import
        vars(notebook)[name] = None
    vars(notebook)["InNotebook"] = InNotebook
    InNotebook.__module__ = "__main__"
    dataset: Any = range(4) if mended else InNotebook(range(4))
    return outcome(DataLoader(dataset, num_workers=1, timeout=30, multiprocessing_context="spawn"))
