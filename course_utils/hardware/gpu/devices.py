"""The emulated GPUs of one machine, as CUDA presents them: numbered, one current in each thread.

gpus = EmulatedDevices(4)
gpus.set_device(rank)
gpu = gpus.current()      # in this thread; in a thread that it starts: GPU 0
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import overload

from course_utils.hardware.gpu.emulated import EmulatedAccelerator
from course_utils.hardware.gpu.presets import PRESETS
from course_utils.hardware.gpu.streams import sleep_until


class EmulatedDevices(Sequence[EmulatedAccelerator]):
    """GPUs of one kind, each with memory, streams and copy engines of its own."""

    def __init__(
        self,
        count: int,
        preset: str = "RTX 3090",
        *,
        step_ms: float | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
        sleep_until: Callable[[int], None] = sleep_until,
    ):
        """Make `count` idle GPUs.

        Args:
            count: how many; their names end in (GPU 0), (GPU 1), ...
            preset: their kind, one of `PRESETS`.
            step_ms: how long a step takes; by default what the preset would need.
            clock: the time in nanoseconds, for all of them.
            sleep_until: wait until the clock reads so much; with it, tests need not wait.

        Raises:
            ValueError: if `count` is less than 1 or there is no such preset.
        """
        if count < 1:
            raise ValueError(f"A machine with {count} GPUs emulates nothing; take at least 1.")
        if preset not in PRESETS:
            raise ValueError(f"There is no preset {preset!r}; use one of: {', '.join(PRESETS)}.")
        kinds = (replace(PRESETS[preset], name=f"{preset} (GPU {i})") for i in range(count))
        self._devices = [
            EmulatedAccelerator(kind, step_ms=step_ms, clock=clock, sleep_until=sleep_until)
            for kind in kinds
        ]
        self._thread = threading.local()

    def __len__(self) -> int:
        return len(self._devices)

    @overload
    def __getitem__(self, index: int) -> EmulatedAccelerator: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[EmulatedAccelerator]: ...
    def __getitem__(
        self, index: int | slice
    ) -> EmulatedAccelerator | Sequence[EmulatedAccelerator]:
        return self._devices[index]

    def __repr__(self) -> str:
        """Say that they are emulated, and how many there are."""
        return f"EmulatedDevices({', '.join(gpu.name for gpu in self)})"

    def current(self) -> EmulatedAccelerator:
        """Return what `torch.device("cuda")` means in this thread: GPU 0 unless it chose."""
        return self._devices[getattr(self._thread, "index", 0)]

    def set_device(self, index: int) -> None:
        """Make GPU `index` the current one of this thread, and of no other.

        Raises:
            ValueError: if there is no such GPU.
        """
        if not 0 <= index < len(self):
            last = len(self) - 1
            raise ValueError(f"There is no GPU {index} here; take a number from 0 to {last}.")
        self._thread.index = index
