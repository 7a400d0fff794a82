"""What prefetchers are tried with: emulated GPUs, and a loader that is watched.

The clock is one that only waiting puts forward: what comes out are counts, checksums and shares of
the emulated time.
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
    map_tensors,
    mark_pinned,
    tensors,
)

BATCHES = 8  # in an epoch
PULSES, LABELS = 48_000, 2_000  # float32 of a batch: 0.2 MB, copied in 0.008 ms, a step takes 0.1
BATCH_BYTES = 4 * (PULSES + LABELS)
MANY = 1_000  # items after which what is endless falls silent, to spare the memory


class DiskError(Exception):
    """What the loader raises."""


class Tally:
    """Counts, and lets others wait for a count."""

    def __init__(self) -> None:
        self.value = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        """Count one more."""
        with self._changed:
            self.value += 1
            self._changed.notify_all()

    def wait_until(self, value: int, seconds: float) -> bool:
        """Tell whether the count came to `value` before the time was over."""
        with self._changed:
            return self._changed.wait_for(lambda: self.value >= value, seconds)

    def settle(self, seconds: float) -> int:
        """Wait until nothing was counted for so long, and return the count."""
        while self.wait_until(self.value + 1, seconds):
            pass
        return self.value


class BenchSource:
    """A loader of batches, in an order that the epoch decides; None: of numbers, without end."""

    def __init__(
        self, batches: Sequence[Any] | None, *, fails_at: int | None = None, pinned: bool = True
    ):
        """Take `batches`; asked for number `fails_at` of an epoch, raise."""
        self.batches = batches
        if batches is not None and pinned:
            self.batches = [map_tensors(mark_pinned, batch) for batch in batches]
        self.size = len(batches or ())  # of an epoch; no len() tells it, as with a stream
        self.fails_at, self.epoch = fails_at, 0
        self.error = DiskError("the disk is gone")
        self.begun, self.closed = Tally(), Tally()  # iterators; one that is through is closed
        self.served = Tally()  # batches
        self.abandoned = threading.Event()  # an endless one ends, whoever still reads

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epochs that begin from now on."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        self.begun.add()
        try:
            for place, batch in enumerate(self._in_order()):
                if place == self.fails_at:
                    raise self.error
                if place == MANY:
                    self.abandoned.wait()
                if self.abandoned.is_set():
                    return
                self.served.add()
                yield batch
        finally:
            self.closed.add()

    def checksums(self, epoch: int | None = None) -> list[float]:
        """Return those of the batches, in the order of an epoch; default: the one chosen."""
        return [checksum(tensors(batch)).item() for batch in self._in_order(epoch)]

    def _in_order(self, epoch: int | None = None) -> Iterator[Any]:
        if self.batches is None:
            yield from count()
            return
        first = 3 * (self.epoch if epoch is None else epoch)
        for number in range(first, first + self.size):
            yield self.batches[number % self.size]


class BenchMachine:
    """Emulated GPUs as CUDA presents them: one is current in each thread, at first GPU 0.

    The streams and the copies of GPU 0 are counted, and those copies that hold the program up.
    """

    def __init__(self, gpus: int = 1):
        """Make idle GPUs with one clock; a step takes 0.1 ms."""
        self.clock = VirtualClock()
        kind = PRESETS["RTX 3090"]
        kinds = [replace(kind, name=f"{kind.name} (GPU {index})") for index in range(gpus)]
        self.gpus = [EmulatedAccelerator(kind, step_ms=0.1, clock=self.clock) for kind in kinds]
        self._thread = threading.local()
        self.streams, self.copies, self.blocking = Tally(), Tally(), Tally()
        self.gpus[0].Stream = _counted(self.gpus[0].Stream, self.streams)  # type: ignore[method-assign]
        self.gpus[0].upload = _counted(self.gpus[0].upload, self.copies, self.blocking)  # type: ignore[method-assign]

    def current(self) -> EmulatedAccelerator:
        """Return what `torch.device("cuda")` means in this thread: GPU 0 unless it chose."""
        return self.gpus[getattr(self._thread, "index", 0)]

    def set_device(self, index: int) -> None:
        """Make GPU `index` the current one of this thread, and of no other."""
        self._thread.index = index


def _counted(
    function: Callable[..., Any], tally: Tally, blocking: Tally | None = None
) -> Callable[..., Any]:
    def counted(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        tally.add()
        if blocking is not None and not options.get("non_blocking"):
            blocking.add()
        return result

    return counted


def make_tensors(count: int = BATCHES) -> list[torch.Tensor]:
    """Return batches that are one tensor each."""
    return [torch.randn(PULSES + LABELS) for _ in range(count)]


def make_pairs(count: int = BATCHES) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches (pulses, labels)."""
    return [(torch.randn(PULSES), torch.randn(LABELS)) for _ in range(count)]
