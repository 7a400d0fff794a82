"""What has to hold on the GPU, each check written for the interface that both devices share."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from gpu_loops import lengths, noise, stage
from gpu_prefetch_checks import PREFETCH_CHECKS

from course_utils.hardware.gpu import Accelerator, checksum
from course_utils.measure.spans import Span
from course_utils.measure.trace import record


def expected(batch: torch.Tensor) -> float:
    """Return the checksum that a step on `batch` has to give."""
    return float(checksum([batch]))


def check_checksums(gpu: Accelerator) -> str:
    """Every type of tensor has the same checksum on the device as on the host."""
    values = torch.arange(100_003)
    types = [torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32]
    for dtype in [*types, torch.float64, torch.complex64]:
        batch = (values % 251).to(dtype)
        assert gpu.step(gpu.upload(batch), ms=0).item() == expected(batch), dtype
    return f"{len(types) + 2} types"


def check_duration(gpu: Accelerator) -> str:
    """A step of 20 ms takes 20 ms, to within 15 %."""
    batch = gpu.upload(noise(1))
    gpu.step(batch, ms=200).item()
    with record() as trace:
        for _ in range(20):
            gpu.step(batch, ms=20)
        gpu.synchronize()
    lasted = median(lengths(trace, "gpu"))
    assert abs(lasted - 20) < 3, lasted
    return f"median {lasted:.2f} ms"


def check_asynchronous(gpu: Accelerator) -> str:
    """Launching takes the host far less time than the device, also while recording."""
    batch = gpu.upload(noise(1))
    gpu.synchronize()
    with record():
        start = time.perf_counter()
        for _ in range(5):
            gpu.step(batch, ms=20)
        launched = time.perf_counter() - start
    assert launched < 0.05, launched
    return f"5 steps of 20 ms launched in {launched * 1e3:.1f} ms"


def check_overlap(gpu: Accelerator) -> str:
    """A copy on a stream of its own runs beside a step, on the step's stream it does not."""
    batch = gpu.pin(noise(256))
    shares = []
    for stream in (gpu.Stream(), gpu.current_stream()):
        stage(gpu, stream, batch)[1].synchronize()
        with record() as trace:
            gpu.step(None, ms=60)
            stage(gpu, stream, batch)
            gpu.synchronize()
        copy, step = (next(s for s in trace.spans if s.lane == lane) for lane in ("copy", "gpu"))
        shares.append(_together(copy, step) / copy.duration_ns)
    assert shares[0] > 0.8, shares
    assert shares[1] < 0.05, shares
    return f"{shares[0]:.0%} of the copy beside the step, {shares[1]:.0%} on the same stream"


def check_wait(gpu: Accelerator) -> str:
    """With a wait the data are right in 20 of 20 runs; without one that is luck."""
    wrong = {True: 0, False: 0}
    for wait in wrong:
        for run in range(20):
            batch = noise(16, seed=run)
            uploaded, done = stage(gpu, gpu.Stream(), gpu.pin(batch))
            if wait:
                gpu.current_stream().wait_event(done)
            wrong[wait] += gpu.step(uploaded, ms=0).item() != expected(batch)
            gpu.synchronize()
    assert not wrong[True], wrong
    return f"without a wait {wrong[False]} of 20 wrong"


def check_record_stream(gpu: Accelerator) -> str:
    """A batch dropped while a step reads it is overwritten, unless the stream was recorded."""
    batches = [noise(64, seed=seed) for seed in range(3)]
    wrong = {}
    for guard in (True, False):
        copies, losses = gpu.Stream(), []
        for batch in [gpu.pin(batch) for batch in batches]:
            uploaded, done = stage(gpu, copies, batch)
            gpu.current_stream().wait_event(done)
            if guard:
                uploaded.record_stream(gpu.current_stream())
            losses.append(gpu.step(uploaded, ms=50))
            del uploaded
        read = [loss.item() for loss in losses]
        wrong[guard] = sum(a != expected(b) for a, b in zip(read, batches, strict=True))
    assert not wrong[True], wrong
    assert wrong[False], wrong
    return f"without record_stream {wrong[False]} of 3 wrong"


def check_pinned(gpu: Accelerator) -> str:
    """Pinned memory is copied faster than pageable."""
    batch, rates = noise(256), []
    for source in (batch, gpu.pin(batch)):
        gpu.upload(source)
        with record() as trace:
            for _ in range(5):
                gpu.upload(source)
        rates.append(batch.nbytes / median(lengths(trace, "copy")) / 1e6)
    assert rates[1] > rates[0], rates
    return f"pageable {rates[0]:.1f} GB/s, pinned {rates[1]:.1f} GB/s"


def check_smi(gpu: Accelerator) -> str:
    """nvidia-smi calls a GPU busy of which a single multiprocessor works."""
    for _ in range(15):
        gpu.step(None, ms=100, occupancy=0.01).item()
    panel = gpu.smi()
    assert panel.gpu_util is None or panel.gpu_util > 90, panel
    return str(panel).replace("\n", " | ")


CHECKS: tuple[Callable[[Accelerator], str], ...] = (
    check_checksums,
    check_duration,
    check_asynchronous,
    check_overlap,
    check_wait,
    check_record_stream,
    check_pinned,
    check_smi,
    *PREFETCH_CHECKS,
)


def _together(a: Span, b: Span) -> int:
    return max(min(a.end_ns, b.end_ns) - max(a.start_ns, b.start_ns), 0)
