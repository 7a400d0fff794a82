"""What prefetchers are tried with: emulated GPUs, and a loader that is watched.

The clock is one that only waiting puts forward: what comes out are counts, checksums and shares of
the emulated time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from course_utils.hardware.gpu import (
    EmulatedAccelerator,
    EmulatedDevices,
    VirtualClock,
    checksum,
    leaves,
    map_leaves,
    mark_pinned,
)

BATCHES = 8  # in an epoch
PULSES, LABELS = 48_000, 2_000  # float32 of a batch: 0.2 MB, copied in 0.008 ms, a step takes 0.1
BATCH_BYTES = 4 * (PULSES + LABELS)


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


class Source:
    """A loader of pinned batches, in an order that the epoch decides."""

    def __init__(self, batches: Sequence[Any], *, fails_at: int = -1, pinned: bool = True):
        """Take `batches`; asked for number `fails_at` of an epoch, raise."""
        self.batches = [map_leaves(mark_pinned, batch) for batch in batches] if pinned else batches
        self._checksums = [
            checksum([leaf for leaf in leaves(batch) if torch.is_tensor(leaf)]).item()
            for batch in batches
        ]
        self.fails_at, self.epoch = fails_at, 0
        self.begun, self.closed = Tally(), Tally()  # iterators; one that is through is closed
        self.served = Tally()  # batches

    def __len__(self) -> int:
        return len(self.batches)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epochs that begin from now on."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        self.begun.add()
        try:
            for place, number in enumerate(self._order(self.epoch)):
                if place == self.fails_at:
                    raise DiskError("the disk is gone")
                self.served.add()
                yield self.batches[number]
        finally:
            self.closed.add()

    @property
    def is_open(self) -> bool:
        """Tell whether an iterator is neither through nor closed."""
        return self.closed.value < self.begun.value

    def checksums(self, epoch: int | None = None) -> list[float]:
        """Return those of the batches, in the order of an epoch; default: the one chosen."""
        order = self._order(self.epoch if epoch is None else epoch)
        return [self._checksums[number] for number in order]

    def _order(self, epoch: int) -> list[int]:
        return [(number + 3 * epoch) % len(self) for number in range(len(self))]


def make_gpus(count: int = 1) -> tuple[EmulatedDevices, VirtualClock]:
    """Return emulated GPUs and their clock."""
    clock = VirtualClock()
    return EmulatedDevices(count, step_ms=0.1, clock=clock), clock


def make_tensors(count: int = BATCHES) -> list[torch.Tensor]:
    """Return batches that are one tensor each."""
    return [torch.randn(PULSES + LABELS) for _ in range(count)]


def make_pairs(count: int = BATCHES) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches (pulses, labels)."""
    return [(torch.randn(PULSES), torch.randn(LABELS)) for _ in range(count)]


def sums(
    gpu: EmulatedAccelerator,
    batches: Iterable[Any],
    *,
    late: bool = False,
    pause: Callable[[int], None] = lambda steps: None,
) -> list[float]:
    """Train on the batches and return what the steps read; NaN where that was garbage.

    Args:
        gpu: computes a step on each batch.
        batches: uploaded; the loop drops each as soon as its step is launched.
        late: read no loss before the end.
        pause: called in each step, with the number of steps launched so far.
    """
    losses: list[Any] = []
    for batch in batches:  # enumerate() would keep the last batch while it asks for the next
        losses.append(gpu.step(batch))
        del batch
        pause(len(losses))
        if not late:
            losses[-1].item()
    return [loss.item() for loss in losses]
