"""An emulated device on a clock that only sleeping and working move on: no test waits."""

from dataclasses import replace

import torch

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator

MS = 1_000_000


class FakeClock:
    """Nanoseconds that pass when somebody sleeps, or works for some milliseconds."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def sleep_until(self, end_ns: int) -> None:
        self.now = max(self.now, end_ns)

    def work(self, ms: float) -> None:
        self.now += round(ms * MS)

    @property
    def ms(self) -> float:
        return self.now / MS


def fake_device(
    *, step_ms: float = 20, memory_gib: float = 1
) -> tuple[EmulatedAccelerator, FakeClock]:
    """Make a device that copies 1 MB/ms from pageable and 2 MB/ms from pinned memory."""
    preset = replace(PRESETS["RTX 3090"], memory_gib=memory_gib, pageable_gb_s=1.0, pinned_gb_s=2.0)
    clock = FakeClock()
    gpu = EmulatedAccelerator(preset, step_ms=step_ms, clock=clock, sleep_until=clock.sleep_until)
    return gpu, clock


def megabytes(count: float, *, seed: int = 0) -> torch.Tensor:
    """Make `count` * 10**6 bytes of noise."""
    return torch.randn(round(count * 250_000), generator=torch.Generator().manual_seed(seed))
