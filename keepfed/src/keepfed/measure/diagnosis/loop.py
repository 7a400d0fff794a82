"""A loop to measure: check it, explain its errors, and leave its loader as it was."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from keepfed.errors import KeepfedError, required
from keepfed.measure.diagnosis.progress import Show, progress
from keepfed.measure.hook import data_loader_in, data_loaders_in, end

HANGS_S = 60  # s without a batch after which a loader without a timeout is canceled


@dataclass(frozen=True)
class DiagnosedLoop:
    """A loader and a step that trains on one batch."""

    loader: Iterable[Any]
    step: Callable[[Any], Any]
    synchronize: Callable[[], Any] | None = None  # waits for the device; None: torch's own
    seconds: float = 0.0  # duration that the user asked for
    show: Show = lambda text: None  # shows what is being measured


@contextmanager
def opened(
    loader: Any, step: Any, seconds: float, synchronize: Callable[[], Any] | None
) -> Iterator[DiagnosedLoop]:
    """Yield the loop to measure for `seconds`. Its loader is restored afterwards.

    Raises:
        KeepfedError: If the loop cannot be measured. The message explains how to fix it.
    """
    _check(loader, step, seconds)
    with preserved(loader) as loader, _explained(), progress(seconds) as show:
        yield DiagnosedLoop(loader, step, synchronize, seconds, show)


def _check(loader: Any, step: Any, seconds: float) -> None:
    required("psutil")  # else it would be missed only after the first run
    if not seconds > 0:
        raise KeepfedError(
            f"`seconds` must be greater than 0, but is {seconds}. Use 10 to 60 seconds."
        )
    if not callable(step):
        raise KeepfedError(
            f"`step` has type {type(step).__name__}, but must be a function. Move the code that "
            "your loop runs for one batch into `def step(batch): ...`, and pass this function."
        )
    if isinstance(loader, Iterator) or not isinstance(loader, Iterable):
        raise KeepfedError(
            f"`loader` has type {type(loader).__name__}, which cannot be iterated several times. "
            "Pass the DataLoader itself instead of `iter(loader)`, or a list of batches."
        )
    if (count := len({id(inner) for inner in data_loaders_in(loader)})) > 1:
        raise KeepfedError(
            f"`loader` joins {count} DataLoaders, and a diagnosis cannot tell which is slow. "
            "Run `keepfed watch python train.py`, which measures each of them."
        )


@contextmanager
def _explained() -> Iterator[None]:
    """Explain the errors of workers that die or hang, and of loaders that cannot begin again."""
    try:
        yield
    except RuntimeError as error:
        message = str(error)
        if late := re.search(r"DataLoader timed out after ([\d.]+) seconds", message):
            raise KeepfedError(
                f"No batch arrived for {late[1]} s, so the loader hangs or is very slow. Find the "
                "place with `num_workers=0`, or increase `timeout`. Forked workers hang if they "
                'use OpenMP threads. In this case, set `multiprocessing_context="forkserver"`.'
            ) from error
        if "DataLoader worker" in message and "Caught" not in message:
            raise KeepfedError(
                f"A worker of the loader died ({message.splitlines()[0]}). Run the loader with "
                "`num_workers=0` to see the reason."
            ) from error
        if isinstance(error.__cause__, StopIteration):
            raise KeepfedError(
                "The loader keeps an iterator that has ended, so it cannot begin another epoch. "
                "Pass the DataLoader inside it, or call `iter` in its `__iter__`."
            ) from error
        raise


@contextmanager
def preserved(loader: Iterable[Any]) -> Iterator[Iterable[Any]]:
    """Yield `loader` to iterate over, and restore it and the random number generators afterwards.

    Inside the block, the loader starts new workers, and running workers are set aside. A loader
    without a timeout gets one of `HANGS_S`.
    """
    inner = data_loader_in(loader)
    with _same_random_numbers(loader), restored(inner):
        if inner is None:
            yield loader
            return
        inner._iterator = None
        if inner.num_workers and not inner.timeout:
            inner.timeout = HANGS_S
        names = [n for n, value in vars(inner).items() if isinstance(value, _BaseDataLoaderIter)]
        try:
            yield _Renewed(loader, inner, names) if names else loader
        finally:
            end(inner._iterator, orderly=False)


@contextmanager
def restored(loader: DataLoader[Any] | None) -> Iterator[None]:
    """Restore the attributes of `loader` afterwards."""
    before = dict(vars(loader)) if loader is not None else {}
    try:
        yield
    finally:
        if loader is not None:
            vars(loader).clear()
            vars(loader).update(before)


class _Renewed:
    """A loader that made its iterator in `__init__`, with a new iterator for each run.

    The loaders of ultralytics and timm do this. Their endless iterator is like persistent workers.
    """

    def __init__(self, loader: Any, inner: Any, names: list[str]):
        """Wrap `loader`, whose `DataLoader` has iterators as attributes called `names`."""
        self.loader, self.inner, self.names = loader, inner, names
        vars(inner)["persistent_workers"] = True

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        if self.inner._iterator is None:
            self.inner._iterator = self.inner._get_iterator()
            vars(self.inner).update(dict.fromkeys(self.names, self.inner._iterator))
        return iter(self.loader)


@contextmanager
def _same_random_numbers(loader: Iterable[Any]) -> Iterator[None]:
    """Restore the random number generators of Python, NumPy, torch, the loader and its samplers."""
    inner = data_loader_in(loader)
    samplers = [getattr(inner, name, None) for name in ("sampler", "batch_sampler")]
    holders = [inner, *samplers, *(getattr(sampler, "sampler", None) for sampler in samplers)]
    generators = {getattr(holder, "generator", None) for holder in holders}
    states = [(g, g.get_state()) for g in generators if isinstance(g, torch.Generator)]
    python_state, numpy_state = random.getstate(), np.random.get_state()
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(range(torch.cuda.device_count()) if started else ()):
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
            for generator, state in states:
                generator.set_state(state)
