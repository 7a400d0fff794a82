"""Checks of a GPU, written for the common interface of real and emulated devices."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any

import torch
from gpu_loops import lengths, noise, stage

from course_utils.hardware.gpu import PRESETS, Accelerator, EmulatedAccelerator, checksum
from keepfed.batches import dense_parts, tensors
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.exchange import load_profile
from keepfed.measure.spans import Span, hidden_share
from keepfed.measure.trace import record


def expected(batch: Any) -> float:
    """Return the checksum that a step on the tensors of `batch` must give."""
    return float(checksum([part for tensor in tensors(batch) for part in dense_parts(tensor)]))


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
    """Launching takes far less time on the host than on the device, even while recording."""
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
    """A copy overlaps with a step on a separate stream, but not on the same stream."""
    batch = gpu.pin(noise(256))
    shares = []
    for stream in (gpu.Stream(), gpu.current_stream()):
        stage(gpu, stream, batch)
        gpu.synchronize()
        with record() as trace:
            gpu.step(None, ms=60)
            stage(gpu, stream, batch)
            gpu.synchronize()
        copy, step = (next(s for s in trace.spans if s.lane == lane) for lane in ("copy", "gpu"))
        shares.append(_together(copy, step) / copy.duration_ns)
    assert shares[0] > 0.8, shares
    assert shares[1] < 0.05, shares
    return f"{shares[0]:.0%} of the copy overlaps with the step, {shares[1]:.0%} on the same stream"


def check_wait(gpu: Accelerator) -> str:
    """With a wait the data are right in 20 of 20 runs. Without it, this depends on luck."""
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


def check_pinned(gpu: Accelerator) -> str:
    """Pinned memory is copied faster than pageable memory."""
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
    """nvidia-smi reports a GPU as busy if only a single multiprocessor works."""
    losses = [gpu.step(None, ms=100, occupancy=0.01) for _ in range(30)]
    losses[14].item()
    panel = gpu.smi()  # during the work, because NVML figures may be a second old
    gpu.synchronize()
    assert panel.gpu_util is None or panel.gpu_util > 90, panel
    return str(panel).replace("\n", " | ")


class Unguarded(CudaPrefetcher):
    """CudaPrefetcher without record_stream."""

    @staticmethod
    def _hand_over(gpu: Any, batch: Any, arrived: Any, number: int) -> Any:
        gpu.current_stream().wait_event(arrived)
        return batch


def check_prefetcher_hides_the_copies(gpu: Accelerator) -> str:
    """Four fifths of the copies after the first overlap with steps, even if each loss is read.

    During the rest, Python launches a step after the copy.
    """
    batches = [gpu.pin(noise(128))] * 6
    _train(gpu, CudaPrefetcher(batches, gpu), ms=0)  # the first allocation takes longer
    with record() as trace:
        _train(gpu, CudaPrefetcher(batches, gpu), ms=20)
    share = hidden(trace.spans)
    assert share > 0.8, share
    return f"{share:.0%} of the copies overlap"


def check_prefetcher_in_a_profile(gpu: Accelerator) -> str:
    """torch.profiler, which is independent of our code, also shows that copies overlap."""
    _need_cuda(gpu)
    from torch.profiler import ProfilerActivity, profile

    batches = [gpu.pin(noise(128))] * 6
    _train(gpu, CudaPrefetcher(batches, gpu), ms=0)
    kinds = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=kinds, acc_events=True) as profiler:
        _train(gpu, CudaPrefetcher(batches, gpu), ms=20)
        gpu.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        profiler.export_chrome_trace(str(path))
        spans = load_profile(path).spans
    assert any(s.lane == "copy" for s in spans), "The profile has no copies. Is CUPTI installed?"
    # ignore the copies of the losses, which have only 4 bytes
    large = [s for s in spans if s.lane != "copy" or s.duration_ns > 100_000]
    share = hidden(large)
    assert share > 0.8, share
    return f"{len(spans)} spans, {share:.0%} of the copies overlap"


def check_prefetcher_guards_its_batches(gpu: Accelerator) -> str:
    """Batches that are dropped while steps read them stay intact only with record_stream."""
    hosts = [noise(64, seed=seed) for seed in range(4)]
    pinned = [gpu.pin(batch) for batch in hosts]
    wanted = [float(checksum([batch])) for batch in hosts]
    wrong = {}
    for kind in (CudaPrefetcher, Unguarded):
        read = _train(gpu, kind(pinned, gpu), ms=50, late=True)
        wrong[kind] = sum(a != b for a, b in zip(read, wanted, strict=True))
    assert not wrong[CudaPrefetcher], wrong
    assert wrong[Unguarded], wrong
    return f"without record_stream {wrong[Unguarded]} of 4 wrong"


def check_prefetcher_waits_for_the_stream_that_computed(gpu: Accelerator) -> str:
    """A loader may reuse its memory even if the loop alternates between two streams."""
    ring = [gpu.pin(torch.zeros(4_000_000)) for _ in range(3)]
    gpu.step(gpu.upload(ring), ms=0).item()
    streams, losses = [gpu.Stream(), gpu.Stream()], []
    batches = iter(CudaPrefetcher((ring[n % 3].fill_(n) for n in range(30)), gpu))
    for number in range(30):
        with gpu.stream(streams[number % 2]):
            losses.append(gpu.step(next(batches), ms=10))
    wanted = [expected(torch.full((4_000_000,), float(number))) for number in range(30)]
    wrong = sum(loss.item() != right for loss, right in zip(losses, wanted, strict=True))
    assert not wrong, f"{wrong} of 30 batches were overwritten before they were copied"
    return "30 of 30 right"


def check_prefetcher_memory_is_flat(gpu: Accelerator) -> str:
    """Forty epochs use as much device memory as five, even with a new prefetcher for each."""
    batches = [gpu.pin(noise(4))] * 4
    kept, taken = CudaPrefetcher(batches, gpu), []
    for epoch in range(40):
        for batch in kept if epoch < 20 else CudaPrefetcher(batches, gpu):
            gpu.step(batch, ms=0).item()
        taken.append(gpu.memory_reserved())
    assert taken[-1] == taken[4], taken
    return f"{taken[-1] / 1e6:.0f} MB in epoch 5 and in epoch 40"


def check_prefetcher_break(gpu: Accelerator) -> str:
    """After a break no batch stays on the device."""
    before = gpu.memory_allocated()
    for batch in CudaPrefetcher([gpu.pin(noise(4))] * 4, gpu, depth=3):
        del batch
        break
    gpu.synchronize()
    left = gpu.memory_allocated() - before
    assert left == 0, left
    return "nothing left after a break"


def check_prefetcher_device(gpu: Accelerator) -> str:
    """A prefetcher for GPU 1 copies to GPU 1, even in a thread whose current device is GPU 0."""
    if gpu.emulated:
        second: Any = EmulatedAccelerator(replace(PRESETS["H200"], name="H200 (GPU 1)"), step_ms=0)
        wanted = second.name
    elif torch.cuda.device_count() < 2:
        return "not checked, because this machine has only one GPU"
    else:
        second, wanted = torch.device("cuda", 1), "cuda:1"
    where: list[str] = []

    def loop() -> None:
        for batch in CudaPrefetcher([gpu.pin(noise(1))] * 3, second):
            where.append(batch.gpu.name if gpu.emulated else str(batch.device))

    thread = Thread(target=loop)
    thread.start()
    thread.join()
    assert where == [wanted] * 3, where
    return f"3 batches on {wanted}"


def check_layouts(gpu: Accelerator) -> str:
    """Sparse and jagged tensors are copied, and their memory is protected."""
    _need_cuda(gpu)
    square, rows = torch.eye(512), [torch.ones(200, 8), torch.ones(300, 8)]
    with warnings.catch_warnings(action="ignore"):  # sparse and nested tensors are prototypes
        jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
        for tensor in (square.to_sparse(), square.to_sparse_csr(), jagged):
            _survives(gpu, [{"a": tensor.clone()} for _ in range(4)])
    return "COO, CSR and jagged copied"


def check_augment(gpu: Accelerator) -> str:
    """The same draws give the same images on both devices, and no operation waits."""
    from course_utils.loading.images import Augment

    device = torch.device("cpu" if gpu.emulated else "cuda")
    augment, random = Augment(size=224), torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (32, 3, 256, 256), dtype=torch.uint8, generator=random)
    draws = augment.draw(images.shape, generator=random)
    on_device = images.to(device), draws.to(device)
    difference = (augment(*on_device).cpu() - augment(images, draws)).abs().max().item()
    assert difference < 1e-3, difference  # for float32 values up to 2.6
    if not gpu.emulated:
        torch.cuda.set_sync_debug_mode("error")
    try:
        augment(*on_device)
    finally:
        if not gpu.emulated:
            torch.cuda.set_sync_debug_mode("default")
    return f"at most {difference:.2g} apart, no operation waits for the device"


def check_captured_graph(gpu: Accelerator) -> str:
    """Watching records iterations while another thread captures a graph, which stays valid."""
    _need_cuda(gpu)
    from keepfed.measure.hook import DeviceClock, device_in_use

    begun, marked, errors = Event(), Event(), list[str]()
    x, recorded = torch.zeros(1024, device="cuda"), list[float]()
    clock = DeviceClock(lambda number, *_: recorded.append(number))

    def capture() -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                x.add_(1)
                begun.set()
                marked.wait(10)
        except RuntimeError as error:
            errors.append(f"the capture fails: {str(error)[:80]}")

    def turns(first: int) -> None:
        for number in range(first, first + 3):
            clock.asked()
            clock.got(number)

    turns(0)
    torch.cuda.synchronize()
    thread = Thread(target=capture)
    thread.start()
    begun.wait(10)
    turns(3)
    marked.set()
    thread.join()
    torch.cuda.synchronize()
    turns(6)
    assert device_in_use(), "The CUDA runtime was not found."
    assert not errors, errors
    assert len(recorded) >= 6, recorded
    return f"the capture survives, {len(recorded)} iterations recorded"


# in the order above, since the last one may leave the device in an error state
CHECKS: list[Callable[[Accelerator], str]] = [
    check for name, check in dict(globals()).items() if name.startswith("check_")
]


def hidden(spans: list[Span]) -> float:
    """Return the overlapped share of the copies, without the first, which follows no step."""
    first = min((span for span in spans if span.lane == "copy"), key=lambda span: span.start_ns)
    return hidden_share([span for span in spans if span is not first])


def _need_cuda(gpu: Accelerator) -> None:
    """Raise an error on an emulated device, which has separate tests for the same facts."""
    if gpu.emulated:
        raise ImportError("needs CUDA")


def _together(a: Span, b: Span) -> int:
    return max(min(a.end_ns, b.end_ns) - max(a.start_ns, b.start_ns), 0)


def _train(
    gpu: Accelerator, batches: Iterable[Any], *, ms: float, late: bool = False
) -> list[float]:
    losses = []
    for batch in batches:
        losses.append(gpu.step(batch, ms=ms))
        del batch
        if not late:
            losses[-1].item()
    return [loss.item() for loss in losses]


def _survives(gpu: Accelerator, hosts: list[Any]) -> None:
    """Serve `hosts` to slow steps, drop each batch immediately, and compare the results."""
    losses = []
    for batch in CudaPrefetcher(hosts, gpu):
        assert type(batch) is type(hosts[0]), type(batch)
        losses.append(gpu.step(batch, ms=10))
        del batch
    wrong = [loss.item() != expected(host) for loss, host in zip(losses, hosts, strict=True)]
    assert not any(wrong), f"{sum(wrong)} of {len(wrong)} wrong"
