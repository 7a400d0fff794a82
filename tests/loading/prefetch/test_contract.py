"""Contract of every prefetcher: each batch once and in order, errors in place, a clean end.

Exercises 05.3 and 09.2 also check when they read, how far ahead, any batch type, and memory.
"""

import contextlib
import gc
import multiprocessing
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from keepfed.loaders.prefetch import CudaPrefetcher, ThreadPrefetcher
from tests.hardware.fake_device import fake_device


class Kind(NamedTuple):
    """A prefetcher, and the batches that it needs."""

    over: Callable[..., Any]
    pinned: Callable[[Iterable[Any]], Iterable[Any]]

    def source(self, length: int = 6) -> "Source":
        numbers = (torch.full((250,), float(number)) for number in range(length))
        return Source(list(self.pinned(numbers)))


class Source:
    """Numbered batches; an error may be raised instead of one of them."""

    error: BaseException = ValueError("corrupt event")

    def __init__(self, batches: list[Any]):
        self.batches, self.fails_at, self.closed = batches, -1, 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        self.kept = self._read()  # so that only the prefetcher ends it
        return self.kept

    def _read(self) -> Iterator[Any]:
        try:
            for number, batch in enumerate(self.batches):
                if number == self.fails_at:
                    raise self.error
                yield batch
        finally:
            self.closed += 1


@pytest.fixture(params=["thread", "cuda"])
def kind(request: pytest.FixtureRequest) -> Kind:
    if request.param == "thread":
        return Kind(ThreadPrefetcher, lambda batches: batches)
    gpu = fake_device()[0]
    return Kind(lambda source, **how: CudaPrefetcher(source, gpu, **how), gpu.pinned)


def number(batch: Any) -> int:
    return int(batch.cpu()[0])


def test_interrupt_reaches_the_loop_and_closes_the_loader(kind: Kind) -> None:
    source, received = kind.source(), list[int]()
    source.fails_at, source.error = 4, KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        received.extend(map(number, kind.over(source)))
    assert received == list(range(len(received)))
    assert source.closed == 1


def test_error_is_freed_after_it_was_handled(kind: Kind) -> None:
    """A reference cycle of frame and traceback would keep workers until the next collection."""
    alive: list[weakref.ref[Any]] = []

    def source() -> Iterator[Any]:
        heavy = torch.zeros(2)
        alive.append(weakref.ref(heavy))
        yield heavy
        raise ValueError(f"corrupt event after {heavy}")

    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            list(kind.over(kind.pinned(source())))
        assert alive[0]() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_workers_serve_two_epochs_and_none_is_left(start_method: str, kind: Kind) -> None:
    how: Any = {"num_workers": 1, "multiprocessing_context": start_method, "timeout": 120}
    loader = DataLoader(TensorDataset(torch.arange(12)), 4, persistent_workers=True, **how)
    prefetcher = kind.over(kind.pinned(loader))
    for _ in range(2):
        assert torch.cat([batch.cpu() for (batch,) in prefetcher]).tolist() == list(range(12))
    for _ in prefetcher:
        break
    del loader, prefetcher
    assert multiprocessing.active_children() == []


def test_leaving_the_loop_closes_the_loader(kind: Kind) -> None:
    source = kind.source()
    for _ in kind.over(source):
        break
    assert source.closed == 1
