"""Apply changes to a loader temporarily, without changing the dataset or the step."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch.utils.data import Dataset, default_convert

from keepfed.batches import leaves
from keepfed.limits import affinity
from keepfed.measure.advice import Change
from keepfed.measure.diagnosis.loop import restored
from keepfed.measure.hook import data_loader_in

TRIAL_HANGS_S = 20  # s without a batch after which a trial is canceled


@contextmanager
def applied(loader: Iterable[Any], change: Change | None) -> Iterator[Iterable[Any]]:
    """Yield the loader with the change, and restore it afterwards. None changes nothing."""
    inner = data_loader_in(loader)
    if change is None:
        yield loader
    elif change.kind == "thread ahead":
        yield _OneAhead(loader)
    elif inner is not None:
        with ExitStack() as stack:
            stack.enter_context(restored(inner))
            if change.kind == "one thread" and not inner.num_workers:
                stack.enter_context(_single_threaded())
            vars(inner).update(_attributes(inner, change))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", UserWarning)  # of more workers than cores
            yield loader


def _attributes(loader: Any, change: Change) -> dict[str, Any]:
    """Return the attributes that the loader would have if it were created with the change."""
    changed = dict(change.arguments)
    workers = changed.get("num_workers", loader.num_workers)
    changed["prefetch_factor"] = (loader.prefetch_factor or 2) if workers else None
    changed["timeout"] = (loader.timeout or TRIAL_HANGS_S) if workers else 0
    if change.kind == "whole batches":
        changed |= {
            "dataset": _WholeBatches(loader.dataset, loader.collate_fn),
            "sampler": loader.batch_sampler,
            "batch_sampler": None,
            "batch_size": None,
            "drop_last": False,
            "collate_fn": default_convert,
        }
    elif change.kind in ("one thread", "all cores") and workers:
        one_thread = partial(threadpool_limits, 1)
        more = one_thread if change.kind == "one thread" else partial(_run_on, affinity())
        changed["worker_init_fn"] = _ChainedInit(loader.worker_init_fn, more)
    return changed


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Limit the thread pools of this process to one thread inside the block."""
    threads = torch.get_num_threads()
    with threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


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
    """A dataset that reads a whole batch with one index, if that returns the same first batch."""

    def __init__(self, dataset: Any, collate: Any):
        self.dataset, self.collate, self.is_checked = dataset, collate, False

    def __getitem__(self, indices: Any) -> Any:
        batch = self.dataset[indices]
        if not self.is_checked:
            expected = self.collate([self.dataset[index] for index in indices])
            if not same(default_convert(batch), expected):  # type: ignore[no-untyped-call]
                raise ValueError("this dataset cannot be indexed with a whole batch")
            self.is_checked = True
        return batch


def same(batch: Any, other: Any) -> bool:
    """Return whether two batches have equal types and leaves. Arrays are never equal."""
    try:
        pairs = list(zip(leaves(batch), leaves(other), strict=True))
        return type(batch) is type(other) and all(
            a.dtype == b.dtype and torch.equal(a, b) if torch.is_tensor(a) else bool(a == b)
            for a, b in pairs
        )
    except Exception:  # comparing objects of an unknown class may raise anything
        return False


class _OneAhead:
    """A loader that loads the next batch in a thread while the step runs."""

    def __init__(self, loader: Any):
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        batches, ended = iter(self.loader), object()
        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(next, batches, ended)
            while (batch := coming.result()) is not ended:
                coming = thread.submit(next, batches, ended)
                yield batch
