"""The accelerator interface on a real GPU, with steps of a chosen length."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch

from course_utils.hardware.gpu.loss import Loss, checksum
from course_utils.hardware.gpu.pinned import PinnedBatches, pin_as_a_loader
from course_utils.hardware.gpu.smi import Smi, nvidia_smi
from keepfed.batches import dense_parts, map_tensors, tensors
from keepfed.device.cuda import CudaDevice, batch_number, numbered, timer
from keepfed.measure.spans import stage

IN_HOST_MEMORY = "The batch is in host memory. Copy it first: batch = gpu.upload(batch)."
ON_ANOTHER_GPU = (
    "The batch is on {}, but the step runs on {}. Upload the batch to the GPU of the step."
)
LEAST_PRODUCT_MS = 0.5  # a stream queues about 1,000 launches, then blocks the host
_SPIN_CYCLES = 10_000_000  # about 5 ms, long enough for calibration


class CudaAccelerator(CudaDevice):
    """A CUDA device that can also run artificial training steps; see `accelerator.Accelerator`."""

    emulated = False

    def __init__(self, *, step_ms: float):
        """Use the current device and measure its speed."""
        super().__init__()
        self.step_ms = step_ms
        self._work = BusyKernels(self.device)

    def Stream(self) -> torch.cuda.Stream:
        """Make a stream."""
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def launch(self, function: Callable[..., Any], *buffers: Any, ms: float) -> Any:
        """Launch `function(*buffers)`. `ms` is ignored on a real GPU."""
        number = batch_number(device_tensors(buffers, self.device))
        with self.span("gpu", "compute", number):
            return numbered(function(*buffers), number)

    def pin(self, batch: Any) -> Any:
        """Return `batch` in pinned host memory. Tensors that are already pinned are not copied."""
        return self._pin(map_tensors, batch)

    def pinned(self, batches: Iterable[Any]) -> PinnedBatches:
        """Return the batches in pinned memory, as `DataLoader(pin_memory=True)` does.

        As in a DataLoader, a dataclass is unchanged unless it has a method `pin_memory`.
        """
        return PinnedBatches(batches, partial(self._pin, pin_as_a_loader))

    @staticmethod
    def _pin(to_tensors: Callable[..., Any], batch: Any) -> Any:
        with stage("transfer", lane="main"):
            return to_tensors(torch.Tensor.pin_memory, batch)

    def memory_allocated(self) -> int:
        """Return the bytes of device memory in use, including dropped batches of running steps."""
        torch.empty(1, device=self.device)  # an allocation makes PyTorch check finished steps
        return int(torch.cuda.memory_stats(self.device).get("active_bytes.all.current", 0))

    def max_memory_allocated(self) -> int:
        """Return the peak of the bytes in use."""
        return int(torch.cuda.memory_stats(self.device).get("active_bytes.all.peak", 0))

    def memory_reserved(self) -> int:
        """Return the bytes that PyTorch holds on the device, including free blocks of its pools."""
        return torch.cuda.memory_reserved(self.device)

    def step(self, batch: Any, *, ms: float | None = None, occupancy: float = 1.0) -> CudaLoss:
        """Launch `ms` of computation and a checksum of `batch`.

        The computation consists of matrix products, as in a training step, which use the complete
        device. If `occupancy` is below 0.5, it is a kernel that counts cycles on a single
        multiprocessor.
        """
        read = device_tensors(batch, self.device)
        with self.span("gpu", "compute", batch_number(read)):
            self._work.run(self.step_ms if ms is None else ms, occupancy)
            return CudaLoss(checksum(read), self.current_stream())

    def smi(self) -> Smi:
        """Return the output of nvidia-smi. Record a trace to see the true idle share."""
        return nvidia_smi(self.name, f"GPU-{torch.cuda.get_device_properties(self.device).uuid}")


def device_tensors(batch: Any, device: torch.device) -> list[torch.Tensor]:
    """Return the dense tensors of a batch, or raise an error if one of them is not on `device`."""
    parts = [part for tensor in tensors(batch) for part in dense_parts(tensor)]
    for tensor in parts:
        if tensor.device.type == "cpu":
            raise ValueError(IN_HOST_MEMORY)
        if tensor.device != device:
            raise RuntimeError(ON_ANOTHER_GPU.format(tensor.device, device))
    return parts


class CudaLoss(Loss):
    """The checksum of a step, while it is copied to the host."""

    def __init__(self, value: torch.Tensor, stream: torch.cuda.Stream):
        self._value = torch.empty((), dtype=value.dtype, device="cpu", pin_memory=True)
        self._value.copy_(value, non_blocking=True)
        self._done = stream.record_event(torch.cuda.Event(blocking=True))  # type: ignore[no-untyped-call]

    def item(self) -> float:
        """Wait for this step, but not for later ones."""
        self._done.synchronize()
        return float(self._value)


class BusyKernels:
    """Kernels that keep the device busy for a given time."""

    def __init__(self, device: torch.device):
        """Measure the duration of a matrix product and of a counted cycle."""
        self.device = device
        self._ms_per_product, size = 0.0, 1024
        while self._ms_per_product < LEAST_PRODUCT_MS:
            size = 128 * round(size * 1.26 / 128)  # doubles the work
            # Zeros, because random numbers use so much power that the clock rate drops after a
            # while (788 instead of 894 TFLOP/s on an H200), and steps would exceed their duration.
            self._factor = torch.zeros(size, size, device=device, dtype=torch.float16)
            self._product = torch.empty_like(self._factor)
            self._ms_per_product = self._time(self._multiply, times=50)
        self._ms_per_cycle = self._time(lambda: self._spin(_SPIN_CYCLES), times=5) / _SPIN_CYCLES

    def run(self, ms: float, occupancy: float) -> None:
        """Launch kernels that take about `ms` on the current stream."""
        if occupancy < 0.5:
            self._spin(round(ms / self._ms_per_cycle))
            return
        for _ in range(round(ms / self._ms_per_product)):
            self._multiply()

    def _multiply(self) -> None:
        torch.mm(self._factor, self._factor, out=self._product)

    def _spin(self, cycles: int) -> None:
        with torch.cuda.device(self.device):  # this thread may use another device
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]

    def _time(self, launch: Callable[[], None], *, times: int) -> float:
        """Return milliseconds per launch, measured after a warm-up at full clock rate."""
        stream, start, end = torch.cuda.current_stream(self.device), timer(), timer()
        for mark in (start, end):
            for _ in range(times):
                launch()
            mark.record(stream)
        end.synchronize()
        elapsed: float = start.elapsed_time(end)
        return elapsed / times
