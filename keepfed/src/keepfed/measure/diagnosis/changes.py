"""Apply changes to a loader temporarily, without changing the dataset or the step."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch.utils.data import Dataset, default_convert

from keepfed.limits import affinity
from keepfed.measure.advice import Change
from keepfed.measure.hook import data_loader_in

TRIAL_HANGS_S = 20  # s without a batch after which a trial is canceled


@contextmanager
def applied(loader: Iterable[Any], change: Change) -> Iterator[Iterable[Any]]:
    """Yield the loader with the change, and restore it afterwards."""
    if change.kind == "thread ahead":
        yield OneAhead(loader)
        return
    inner = data_loader_in(loader)
    assert inner is not None
    before = dict(vars(inner))
    vars(inner).update(_attributes(inner, change))
    here = change.kind == "one thread" and not inner.num_workers
    try:
        with warnings.catch_warnings(), single_threaded() if here else nullcontext():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # torch warns about more workers than cores
            yield loader
    finally:
        vars(inner).clear()
        vars(inner).update(before)


def _attributes(loader: Any, change: Change) -> dict[str, Any]:
    """Return the attributes that the loader would have if it were created with the change."""
    found = dict(change.arguments)
    workers = found.get("num_workers", loader.num_workers)
    found["prefetch_factor"] = (loader.prefetch_factor or 2) if workers else None
    found["timeout"] = (loader.timeout or TRIAL_HANGS_S) if workers else 0
    if change.kind == "whole batches":
        found |= {
            "dataset": _WholeBatches(loader.dataset, loader.collate_fn),
            "sampler": loader.batch_sampler,
            "batch_sampler": None,
            "batch_size": None,
            "drop_last": False,
            "collate_fn": default_convert,
        }
    elif change.kind in ("one thread", "all cores") and workers:
        one_thread = change.kind == "one thread"
        more = _limit_threads if one_thread else partial(_run_on, affinity())
        found["worker_init_fn"] = _ChainedInit(loader.worker_init_fn, more)
    return found


@contextmanager
def single_threaded() -> Iterator[None]:
    """Limit the thread pools of this process to one thread inside the block."""
    threads, limits = torch.get_num_threads(), _limit_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        limits.restore_original_limits()
        torch.set_num_threads(threads)


def _limit_threads() -> Any:
    """Limit the thread pools of this process to one thread until the result is deleted."""
    return threadpool_limits(1)


def _run_on(cores: set[int]) -> None:
    os.sched_setaffinity(0, cores)


class _ChainedInit:
    """A `worker_init_fn` that calls another function after the loader's own."""

    def __init__(self, init: Callable[[int], None] | None, more: Callable[[], Any]):
        self.init, self.more = init, more
        self.held: Any = None  # thread limits end when the object that set them is deleted

    def __call__(self, worker_id: int) -> None:
        if self.init is not None:
            self.init(worker_id)
        self.held = self.more()


class _WholeBatches(Dataset[Any]):
    """A dataset that reads a whole batch with one index, and checks the first two batches."""

    def __init__(self, dataset: Any, collate: Any):
        self.dataset, self.collate, self.compared = dataset, collate, 0

    def __getitem__(self, indices: Any) -> Any:
        batch = self.dataset[indices]
        if self.compared < 2:
            self.compared += 1
            expected = self.collate([self.dataset[index] for index in indices])
            if not same(default_convert(batch), expected):  # type: ignore[no-untyped-call]
                raise ValueError("this dataset cannot be indexed with a whole batch")
        return batch


def same(one: Any, other: Any) -> bool:
    """Return whether two batches have equal contents."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    try:
        return bool(one == other)
    except Exception:  # comparing objects of an unknown class may raise anything
        return False


class OneAhead:
    """A loader that loads the next batch in a thread while the step runs."""

    def __init__(self, loader: Any):
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches, end = iter(self.loader), object()
        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(next, batches, end)
            while (batch := coming.result()) is not end:
                coming = thread.submit(next, batches, end)
                yield batch
