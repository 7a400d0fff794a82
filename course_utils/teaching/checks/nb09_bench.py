"""What the check of a prefetcher measures with: emulated GPUs, and a loader that is watched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from course_utils.hardware.checksum import checksum
from course_utils.hardware.device_clock import VirtualTime
from course_utils.hardware.emulated_devices import EmulatedDevices
from course_utils.hardware.emulated_memory import mark_pinned
from course_utils.hardware.nested import leaves, map_leaves
from course_utils.teaching.hanging import within_limits

PULSES = 50_000  # float32, 0.2 MB: copied in 0.008 ms, a step takes 0.1
BATCH_BYTES = 4 * PULSES
BATCHES = 8
PATIENCE_S = 5.0  # until a loop counts as hung; a right one needs milliseconds

Make = Callable[..., Iterable[Any]]


class DiskError(Exception):
    """What the loader of the check raises."""


class Pair(NamedTuple):
    """A tensor, and a word beside it."""

    energy: torch.Tensor
    kind: str


class Counter:
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

    def __init__(self, batches: Sequence[Any] | None = None, *, fails_at: int = -1):
        """Take `batches`, or make some; asked for number `fails_at` of an epoch, raise."""
        if batches is None:
            batches = [torch.randn(PULSES) for _ in range(BATCHES)]
        self.batches = [map_leaves(mark_pinned, batch) for batch in batches]
        self.fails_at, self.epoch = fails_at, 0
        self.begun, self.closed = threading.Event(), threading.Event()
        self.taken = Counter()

    def __len__(self) -> int:
        return len(self.batches)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epochs that begin from now on."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        try:
            for place, number in enumerate(self._order()):
                self.begun.set()
                if place == self.fails_at:
                    raise DiskError("the disk is gone")
                self.taken.add()
                yield self.batches[number]
        finally:
            self.closed.set()

    def sums(self) -> list[float]:
        """Return the checksums of the batches, in the order of the epoch."""
        batches = [self.batches[number] for number in self._order()]
        return [checksum([x for x in leaves(b) if torch.is_tensor(x)]).item() for b in batches]

    def _order(self) -> list[int]:
        return [(number + 3 * self.epoch) % len(self.batches) for number in range(len(self))]


class Bench:
    """Emulated GPUs on a clock that only waiting puts forward."""

    def __init__(self, gpus: int = 1):
        """Make them, and count the streams and the copies of the first one."""
        self.clock = VirtualTime()
        self.gpus = EmulatedDevices(
            gpus, step_ms=0.1, clock=self.clock, sleep_until=self.clock.sleep_until
        )
        self.gpu = self.gpus[0]
        self.streams_made, self.copies = 0, Counter()
        make_stream, upload = self.gpu.Stream, self.gpu.upload

        def counted_stream() -> Any:
            self.streams_made += 1
            return make_stream()

        def counted_upload(batch: Any, *, non_blocking: bool = False) -> Any:
            uploaded = upload(batch, non_blocking=non_blocking)
            self.copies.add()
            return uploaded

        self.gpu.Stream = counted_stream  # type: ignore[method-assign]
        self.gpu.upload = counted_upload  # type: ignore[method-assign]

    def sums(
        self,
        batches: Iterable[Any],
        *,
        late: bool = False,
        ahead: int = 0,
        pause_s: float = 0.0,
    ) -> list[float]:
        """Train on the batches of an epoch and return what the steps read, NaN for garbage.

        Args:
            batches: the prefetcher; each batch is dropped before the next is asked for.
            late: read no loss before the end.
            ahead: in each step, leave a thread the real time to launch so many copies more; a
                virtual step is over before a thread wakes up. Who once does not, never will.
            pause_s: how long that may take.
        """
        losses: list[Any] = []
        patient = ahead > 0
        for batch in batches:  # enumerate() would keep the last batch while it asks for the next
            losses.append(self.gpu.step(batch))
            del batch
            if patient and len(losses) + ahead <= BATCHES:
                patient = self.copies.wait_until(len(losses) + ahead, pause_s)
            if not late:
                losses[-1].item()
        return [loss.item() for loss in losses]


def within(loop: Callable[[list[Any]], Any], misconception: str, next_step: str) -> Any:
    """Return what `loop` returns; if it hangs, the attempt is wrong."""
    return within_limits(PATIENCE_S, loop, misconception, next_step)


def nested_batches() -> list[Any]:
    """Make batches that are dicts, with tensors at two depths and things that are no tensors."""
    return [
        {
            "pulses": torch.randn(100, 4),
            "ids": [f"event {number}", f"event {number + 1}"],
            "label": Pair(torch.randn(2), "track" if number % 2 else "cascade"),
        }
        for number in range(3)
    ]
