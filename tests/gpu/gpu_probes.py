"""Measure a GPU and its driver, to compare them with the emulated device and with our claims.

Each probe returns its figures. The probes use the common interface of both devices, so they can be
tested without a GPU. The emulated device skips figures that exist only with CUDA.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from gpu_loops import noise

from course_utils.hardware.gpu import Accelerator, HostClock, checksum
from keepfed.device.cuda import round_trip, timer

Figures = dict[str, Any]
SIZES_MB = (0.016, 0.064, 0.25, 1, 4, 8, 16, 24, 64, 256)
SIZES_KB = (16, 48, 64, 65, 72, 128, 1024)


def probe_bus(gpu: Accelerator, clock: HostClock) -> Figures:
    """Return GB/s to the device by MB, from pageable and pinned memory, the best of five."""
    rates: Figures = {"pageable": {}, "pinned": {}}
    for megabytes in SIZES_MB:
        batch = noise(megabytes)
        for name, source in (("pageable", batch), ("pinned", gpu.pin(batch))):
            ms = min(_ms(gpu, clock, lambda source=source: gpu.upload(source)) for _ in range(5))
            rates[name][megabytes] = round(batch.nbytes / ms / 1e6, 2)
    return rates


def probe_small_copies(gpu: Accelerator, clock: HostClock) -> Figures:
    """Return for how many ms a non_blocking pageable copy blocks the host, by KB.

    The copy follows a step of 50 ms. CUDA documents copies of up to 64 KB as asynchronous.
    """
    held: Figures = {}
    for kilobytes in SIZES_KB:
        batch = torch.zeros(kilobytes * 1024, dtype=torch.uint8)
        gpu.upload(batch)
        gpu.step(None, ms=50)
        begun = clock()
        gpu.upload(batch, non_blocking=True)
        held[f"{kilobytes} KB"] = _since(clock, begun)
        gpu.synchronize()
    return held


def probe_pinning(gpu: Accelerator, clock: HostClock) -> Figures:
    """Return the ms for pinning 24 MB for the first time and later, and the memory kept."""
    batch = noise(24)
    took = []
    for _ in range(4):
        begun = clock()
        pinned = gpu.pin(batch)
        took.append(_since(clock, begun))
        del pinned
    kept = {} if gpu.emulated else torch.cuda.host_memory_stats()
    return {"ms": took, "kept_mib": kept.get("allocated_bytes.current", 0) / 2**20}


def probe_waiting(gpu: Accelerator, clock: HostClock) -> Figures:
    """Return the CPU use of a host that waits 500 ms for the device, by way of waiting."""
    ways: dict[str, Callable[[], Any]] = {"loss.item()": lambda: gpu.step(None, ms=500).item()}
    ways["synchronize()"] = lambda: (gpu.step(None, ms=500), gpu.synchronize())
    if not gpu.emulated:
        one = torch.ones((), device=gpu.device)  # type: ignore[attr-defined]
        ways["tensor.item()"] = lambda: (gpu.step(None, ms=500), one.item())
    shares = {}
    for name, wait in ways.items():
        gpu.synchronize()
        begun, cpu = clock(), time.process_time()
        wait()
        shares[name] = round((time.process_time() - cpu) * 1e3 / max(_since(clock, begun), 1), 2)
    return shares


def probe_anchors(gpu: Accelerator, clock: HostClock) -> Figures:
    """Return the round trip of an anchor in µs, idle and busy, and the drift of the clocks."""
    if gpu.emulated:
        raise ImportError("an emulated device needs no anchors")
    device: torch.device = gpu.device  # type: ignore[attr-defined]

    def trips() -> list[float]:
        return [round(round_trip(device, clock)[0] / 1e3, 1) for _ in range(20)]

    time.sleep(2)  # until the device is idle
    figures: Figures = {"idle": trips()}
    gpu.step(None, ms=300)
    figures["busy"] = trips()
    gpu.synchronize()
    (_, first, first_ns), _ = round_trip(device, clock), time.sleep(3)
    _, last, last_ns = round_trip(device, clock)
    drift_ms = (last_ns - first_ns) / 1e6 - first.elapsed_time(last)
    return {**figures, "drift_us_per_s": round(drift_ms * 1e9 / (last_ns - first_ns), 2)}


def probe_power(gpu: Accelerator, clock: HostClock) -> Figures:
    """Return nvidia-smi's figures when idle, with one busy multiprocessor, and with all busy."""
    clock.sleep_until(clock() + 3_000_000_000)
    panels = {"at rest": gpu.smi()}
    for name, occupancy in (("one multiprocessor", 0.01), ("all, zeros", 1.0)):
        losses = [gpu.step(None, ms=100, occupancy=occupancy) for _ in range(40)]
        losses[29].item()
        panels[name] = gpu.smi()
        gpu.synchronize()
    figures: Figures = {
        name: f"{panel.gpu_util} %, {panel.power_w} W of {panel.max_power_w} W, {panel.perf}"
        for name, panel in panels.items()
    }
    if not gpu.emulated:
        figures["products of noise"] = _products(gpu)
    return figures


def probe_launches(gpu: Accelerator, clock: HostClock) -> Figures:
    """Return the µs of launching a checksum, and the number of launches before it blocks."""
    if gpu.emulated:
        raise ImportError("launching on an emulated device costs nothing")
    batch = torch.zeros(1024, device=gpu.device)  # type: ignore[attr-defined]
    checksum([batch])
    begun = clock()
    for _ in range(30):
        checksum([batch])
    figures: Figures = {"us_per_checksum": round((clock() - begun) / 30e3, 1)}
    gpu.synchronize()
    gpu.step(None, ms=300, occupancy=0.01)
    took = []
    for _ in range(3000):
        begun = clock()
        batch.add_(1)
        took.append(clock() - begun)
        if took[-1] > 5_000_000:  # ns; the launch waited for the step
            break
    gpu.synchronize()
    return {**figures, "us_per_launch": median(took) / 1e3, "launches_taken": len(took)}


PROBES: list[Callable[[Accelerator, HostClock], Figures]] = [
    probe for name, probe in dict(globals()).items() if name.startswith("probe_")
]


def _since(clock: HostClock, begun: int) -> float:
    return round((clock() - begun) / 1e6, 3)


def _ms(gpu: Accelerator, clock: HostClock, work: Callable[[], Any]) -> float:
    gpu.synchronize()
    begun = clock()
    done = work()
    gpu.synchronize()
    del done
    return max((clock() - begun) / 1e6, 1e-6)


def _products(gpu: Accelerator) -> Figures:
    """Return TFLOP/s of fp16 matrix products at first and after 3 s, and the power."""
    size = 8192
    factor = torch.randn(size, size, device=gpu.device, dtype=torch.float16)  # type: ignore[attr-defined]
    product, rates, begun = torch.empty_like(factor), [], time.perf_counter()
    while time.perf_counter() - begun < 3:
        start, end = timer(), timer()
        start.record()
        for _ in range(50):
            torch.mm(factor, factor, out=product)
        end.record()
        end.synchronize()
        rates.append(round(50 * 2 * size**3 / start.elapsed_time(end) / 1e9))
    for _ in range(500):
        torch.mm(factor, factor, out=product)
    panel = gpu.smi()
    gpu.synchronize()
    return {"first": rates[0], "last": rates[-1], "power_w": panel.power_w}
