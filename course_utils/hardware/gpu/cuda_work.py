"""Keep a CUDA device busy for a given time, and measure times on it."""

from __future__ import annotations

from collections.abc import Callable

import torch

_SPIN_CYCLES = 10_000_000  # some 5 ms: long enough to calibrate with


class Work:
    """Kernels that keep the device busy for a given time."""

    def __init__(self, device: torch.device):
        """Find out how long a matrix product and a counted cycle take here."""
        self.device = device
        self._ms_per_product, size = 0.0, 1024
        while self._ms_per_product < 0.1:  # shorter ones would keep the host busy with launching
            size *= 2
            self._factor = torch.randn(size, size, device=device, dtype=torch.float16)
            self._product = torch.empty_like(self._factor)
            self._ms_per_product = self._time(self._multiply, times=200)
        self._ms_per_cycle = self._time(lambda: self._spin(_SPIN_CYCLES), times=5) / _SPIN_CYCLES

    def run(self, ms: float, occupancy: float) -> None:
        """Launch work of about `ms` on the current stream."""
        if occupancy < 0.5:
            self._spin(round(ms / self._ms_per_cycle))
            return
        for _ in range(round(ms / self._ms_per_product)):
            self._multiply()

    def _multiply(self) -> None:
        torch.mm(self._factor, self._factor, out=self._product)

    def _spin(self, cycles: int) -> None:
        with torch.cuda.device(self.device):  # another one may be current in this thread
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]

    def _time(self, launch: Callable[[], None], *, times: int) -> float:
        """Return the milliseconds per launch, the second time: loaded, and at full clock rate."""
        stream, start, end = torch.cuda.current_stream(self.device), timer(), timer()
        for mark in (start, end):
            for _ in range(times):
                launch()
            mark.record(stream)
        end.synchronize()
        elapsed: float = start.elapsed_time(end)
        return elapsed / times


def timer() -> torch.cuda.Event:
    """Return an event that notes the time at which the device passes it."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
