"""Record the figures of one loader in this process, with a description of the loader."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable, Mapping
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from keepfed.limits import get_rank, known, usable_cores
from keepfed.measure.hook import reads_whole_batches
from keepfed.measure.stacks import is_ours, is_own
from keepfed.measure.watch.timing.ring_file import ENDING, RingFile, records_folder

MAX_LOADERS = 16  # number of loaders watched per process
_PASS_ON = "__init__", "__iter__", "__next__", "<listcomp>"  # parts of an iterator

_writers: list[Writer] = []


class Writer:
    """Writer of the `RingFile` of one loader in this process."""

    def __init__(self, loader: Any, about: Mapping[str, Any]):
        self.name = f"{os.getpid()}-{len(_writers)}"
        self.loader, self.about = _reference(loader), {**about, "name": self.name}
        self.file = RingFile(records_folder() / f"{self.name}{ENDING}", self.about)
        self.cores = 0  # one bit for each core that a worker may use
        self.is_short = False  # whether iterations are so short that few of them are timed

    def add_device_times(self, place: int, idle_ns: float, work_ns: float, *_: float) -> None:
        """Add the device times of the iteration at `place` in the file."""
        self.file.set_field(place, "device_idle_ns", idle_ns)
        self.file.set_field(place, "device_work_ns", work_ns)
        self.file.totals.device_idle_ns += round(idle_ns)
        self.file.totals.device_iterations += 1

    def describe(self, **more: Any) -> None:
        """Add to the description."""
        self.about = {**self.about, **more}
        self.file.describe(self.about)


def get_writer(loader: Any) -> Writer | None:
    """Return the writer of `loader`, or None if there are too many loaders.

    `loader` takes over the writer of an equal loader that no longer exists.
    """
    known = next((writer for writer in _writers if writer.loader() is loader), None)
    if known is not None:
        return known
    about = _description(loader)
    for writer in _writers:
        if writer.loader() is None and all(
            writer.about[key] == about[key] for key in _IDENTITY_KEYS
        ):
            writer.loader = _reference(loader)
            writer.describe(made=writer.about["made"] + 1)
            return writer
    if len(_writers) == MAX_LOADERS:
        return None
    _writers.append(Writer(loader, about))
    return _writers[-1]


_IDENTITY_KEYS = ("kind", "dataset", "batch_size", "workers", "prefetch_factor", "at", "inner")


def _description(loader: Any) -> dict[str, Any]:
    """Describe the loader, but never call its `len`, after which an `IterableDataset` may warn."""
    at, inner = call_sites(sys._getframe(1))
    context = getattr(loader, "multiprocessing_context", None) or torch.multiprocessing
    # With allow_none=False, this call would fix the start method of the program.
    method = context.get_start_method(allow_none=True) or context.get_all_start_methods()[0]
    workers = getattr(loader, "num_workers", 0)
    rank, ranks = known(get_rank) or (0, 1)
    return {
        "kind": type(loader).__name__,
        "takes": _access_pattern(loader),
        "dataset": type(getattr(loader, "dataset", loader)).__name__,
        "batch_size": _batch_size(loader),
        "getitems": reads_whole_batches(loader),
        "in_order": hasattr(loader, "in_order"),
        "workers": workers,
        "prefetch_factor": getattr(loader, "prefetch_factor", None) or 2,
        "persistent": bool(getattr(loader, "persistent_workers", False)),
        "pinned": bool(getattr(loader, "pin_memory", False)),
        "start_method": method,
        "at": at,
        "made": 1,  # number of equal loaders that used this writer, one at a time
        "inner": inner,
        "pid": os.getpid(),
        "main_cores": usable_cores(),
        "rank": rank,
        "ranks": ranks,
    }


def _access_pattern(loader: Any) -> str:
    """Return how the loader gets its samples, as one of the kinds of a `Setting`."""
    if not isinstance(loader, DataLoader):
        return "no DataLoader"
    if isinstance(loader.dataset, IterableDataset):
        return "stream"
    return "samples" if loader.batch_sampler is None else "batches of samples"


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def _location(file: str, line: int) -> str:
    # IPython compiles a notebook cell under the name of a temporary file.
    in_a_cell = Path(file).parent.name.startswith("ipykernel_")
    return f"line {line} of a cell" if in_a_cell else f"{Path(file).name}:{line}"


def call_sites(frame: FrameType | None) -> tuple[str, str]:
    """Return the line of the loop in the program, and the line in the code between, if any.

    Without a line of the program, both are the line of the library that loops. Iterators and
    generators that pass on the batches of a loader do not count as its loop.
    """
    inner = ""
    while frame is not None:
        code, file = frame.f_code, frame.f_code.co_filename
        if not is_ours(frame) and f"{os.sep}torch{os.sep}utils{os.sep}data{os.sep}" not in file:
            place = _location(file, frame.f_lineno)
            in_program = is_own(file)
            passes_on = code.co_flags & CO_GENERATOR or code.co_name in _PASS_ON
            inner = inner or (place if in_program or not passes_on else "")
            if in_program and not passes_on:
                return place, inner
        frame = frame.f_back
    return inner, inner


def _reference(loader: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(loader)
    except TypeError:  # some objects, such as a list of batches, have no weak references
        return lambda: loader


if hasattr(os, "register_at_fork"):  # the files belong to the parent
    os.register_at_fork(after_in_child=_writers.clear)
