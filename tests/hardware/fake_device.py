"""An emulated device on a fake clock, so that tests do not wait."""

from dataclasses import replace

import torch

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator, VirtualClock

MS = 1_000_000


class FakeClock(VirtualClock):
    """Clock in ns that advances when code sleeps or works for some milliseconds."""

    @property
    def now(self) -> int:
        return self()

    @property
    def ms(self) -> float:
        return self() / MS

    def work(self, ms: float) -> None:
        self.sleep_until(self() + round(ms * MS))


def fake_device(
    *, step_ms: float = 20, memory_gib: float = 1
) -> tuple[EmulatedAccelerator, FakeClock]:
    """Return a device that copies 1 MB/ms from pageable and 2 MB/ms from pinned memory."""
    preset = replace(PRESETS["RTX 3090"], memory_gib=memory_gib, pageable_gb_s=1.0, pinned_gb_s=2.0)
    clock = FakeClock()
    return EmulatedAccelerator(preset, step_ms=step_ms, clock=clock), clock


def megabytes(count: float, *, seed: int = 0) -> torch.Tensor:
    return torch.randn(round(count * 250_000), generator=torch.Generator().manual_seed(seed))
