"""What the check of a prefetcher measures with: GPUs that count, and a limit to waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

from course_utils.teaching.exercise import within_limits
from notebooks.stories.prefetchers import BATCHES, Tally, make_gpus

PATIENCE_S = 5.0  # until a loop counts as hung; a right one needs milliseconds

Make = Callable[..., Iterable[Any]]


class Pair(NamedTuple):
    """A tensor, and a word beside it."""

    energy: torch.Tensor
    kind: str


class Bench:
    """Emulated GPUs; the streams and the copies of the first one are counted."""

    def __init__(self, gpus: int = 1):
        """Make them and their clock."""
        self.gpus, self.clock = make_gpus(gpus)
        self.gpu = self.gpus[0]
        self.streams_made, self.copies = 0, Tally()
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

    def pause(self, ahead: int, seconds: float) -> Callable[[int], None]:
        """Return what in each step leaves a thread the real time to launch `ahead` copies more.

        A virtual step is over before a thread wakes up. Who once does not, never will: from then
        on there is no waiting.
        """
        patient = True

        def wait(steps: int) -> None:
            nonlocal patient
            if patient and steps + ahead <= BATCHES:
                patient = self.copies.wait_until(steps + ahead, seconds)

        return wait


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
