"""A test bench for prefetchers: emulated GPUs, and a loader that records its use.

Only waiting advances the virtual clock. The results are counts, checksums and shares of the
emulated time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch

from course_utils.hardware.gpu import (
    PRESETS,
    EmulatedAccelerator,
    VirtualClock,
    checksum,
    mark_pinned,
)
from keepfed.batches import map_tensors, tensors

BATCHES = 8  # in an epoch
PULSES, LABELS = 48_000, 2_000  # float32 values of a batch: 0.2 MB, which take 0.008 ms to copy
BATCH_BYTES = 4 * (PULSES + LABELS)
MANY = 1_000  # items after which an endless source pauses, to limit the memory


class DiskError(Exception):
    """The error that the loader raises."""


class Tally:
    """A counter that other threads can wait for."""

    def __init__(self) -> None:
        self.value = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        """Add one."""
        with self._changed:
            self.value += 1
            self._changed.notify_all()

    def wait_until(self, value: int, seconds: float) -> bool:
        """Return whether the count reached `value` within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.value >= value, seconds)

    def settle(self, seconds: float) -> int:
        """Wait until the count has not changed for `seconds`, and return it."""
        while self.wait_until(self.value + 1, seconds):
            pass
        return self.value


class BenchSource:
    """A loader whose order depends on the epoch. Without batches it yields endless integers."""

    def __init__(self, batches: Sequence[Any] | None, fails_at: int | None = None):
        """Serve `batches`, and raise an error at index `fails_at` of the first epoch."""
        self.batches, self.fails_at, self.epoch = batches, fails_at, 0
        # batches per epoch, as the source has no len(), like a stream
        self.size = len(batches or ())
        self.error = DiskError("the disk is gone")
        self.begun, self.closed = Tally(), Tally()  # iterators, which close when they finish
        self.served = Tally()  # batches served
        self.abandoned = threading.Event()  # stops an endless source, even for active readers

    def set_epoch(self, epoch: int) -> None:
        """Set the order of all later epochs."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        self.begun.add()
        fails_at = self.fails_at if self.begun.value == 1 else None
        try:
            for place, batch in enumerate(self._in_order()):
                if place == fails_at:
                    raise self.error
                if place == MANY:
                    self.abandoned.wait()
                if self.abandoned.is_set():
                    return
                self.served.add()
                yield batch
        finally:
            self.closed.add()

    def checksums(self) -> list[float]:
        """Return the checksums of the batches in the order of the current epoch."""
        return [checksum(tensors(batch)).item() for batch in self._in_order()]

    def _in_order(self) -> Iterator[Any]:
        if self.batches is None:
            yield from count()
            return
        for number in range(3 * self.epoch, 3 * self.epoch + self.size):
            yield self.batches[number % self.size]


class BenchMachine:
    """Emulated GPUs with a current device per thread, as in CUDA; the default is GPU 0.

    It acts as the current GPU, and counts the streams and the copies of GPU 0.
    """

    emulated = True

    def __init__(self, gpus: int = 1):
        """Create idle GPUs with a common clock and steps of 0.1 ms."""
        self.clock = VirtualClock()
        kind = PRESETS["RTX 3090"]
        kinds = [replace(kind, name=f"{kind.name} (GPU {index})") for index in range(gpus)]
        self.gpus = [EmulatedAccelerator(kind, step_ms=0.1, clock=self.clock) for kind in kinds]
        self.thread = threading.local()  # its `index` is the current GPU
        self.streams, self.copies = Tally(), Tally()
        self.gpus[0].Stream = _counted(self.gpus[0].Stream, self.streams)  # type: ignore[method-assign]
        self.gpus[0].upload = _counted(self.gpus[0].upload, self.copies)  # type: ignore[method-assign]

    @property
    def index(self) -> int:
        """The current GPU of this thread, which is 0 unless the thread has set another."""
        return getattr(self.thread, "index", 0)

    def current(self) -> EmulatedAccelerator:
        """Return the current GPU of this thread."""
        return self.gpus[self.index]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.current(), name)


def _counted(function: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        tally.add()
        return result

    return counted


def make_tensors(count: int = BATCHES) -> list[torch.Tensor]:
    """Return batches of one pinned tensor each."""
    return pinned([torch.randn(PULSES + LABELS) for _ in range(count)])


def make_pairs(count: int = BATCHES) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches (pulses, labels) in pinned memory."""
    return pinned([(torch.randn(PULSES), torch.randn(LABELS)) for _ in range(count)])


def pinned(batches: list[Any]) -> list[Any]:
    """Return the batches in pinned memory."""
    return [map_tensors(mark_pinned, batch) for batch in batches]
