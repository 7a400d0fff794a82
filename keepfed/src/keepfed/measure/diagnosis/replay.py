"""Keep a few batches of a loader, and replay them as a loader that takes no time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

from keepfed.batches import nbytes
from keepfed.measure.accelerator import copy_s
from keepfed.measure.diagnosis.loop import DiagnosedLoop
from keepfed.measure.hook import contents_of
from keepfed.measure.records import Contents

KEPT_BATCHES, KEPT_BYTES = 8, 1 << 28  # maximum batches and bytes that are kept
WARM_UP = 3  # steps that include allocations and the choice of kernels, and do not count


class Replay:
    """The first batches of a loader, again and again."""

    def __init__(self, loop: DiagnosedLoop):
        """Keep no batch yet."""
        self.loop, self.batches = loop, list[Any]()
        self.nbytes, self.contents = 0, Contents(0, "", 1.0)  # of the first batch
        self.copy_s: float | None = None  # to copy a batch to a real accelerator, if it is used

    def keep(self, batch: Any) -> None:
        """Keep `batch` if there is room, and run the step on the first one.

        An error in the step thus shows up before anything is measured.
        """
        if not self.batches:
            self.nbytes, self.contents = nbytes(batch), contents_of(batch)
            self.loop.step(_in_new_containers(batch))
        if len(self.batches) < KEPT_BATCHES and len(self.batches) * self.nbytes <= KEPT_BYTES:
            self.batches.append(batch)

    def warm_up(self, seconds: float) -> None:
        """Run the step on a few batches, at most for about `seconds`."""
        begun = time.perf_counter()
        for _, batch in zip(range(WARM_UP), self, strict=False):
            self.loop.step(batch)
            if time.perf_counter() - begun > seconds:
                break

    def end(self, used_device: bool) -> None:
        """Time a copy to the device that the step used, and drop the batches.

        Batches of workers hold shared memory.
        """
        if used_device:
            self.copy_s = copy_s(self.batches[0])
        self.batches.clear()

    def __iter__(self) -> Iterator[Any]:
        return map(_in_new_containers, cycle(self.batches))


def _in_new_containers(batch: Any) -> Any:
    """Return `batch` in new containers that a step may change, with the same tensors."""
    if type(batch) is dict:
        return {key: _in_new_containers(value) for key, value in batch.items()}
    if type(batch) is list:
        return [_in_new_containers(part) for part in batch]
    return batch
