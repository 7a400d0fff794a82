"""Check expectations from a code review on a real GPU; each check prints one line.

The checks need CUDA, because the emulated device has separate tests for the same facts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from gpu_checks import expected
from gpu_loops import noise

from course_utils.hardware.gpu import checksum, dense_parts, leaves, tensors
from course_utils.hardware.gpu.cuda import CudaAccelerator
from keepfed.loaders.prefetch import CudaPrefetcher


class Graph:
    """An object with the interface of a DGLGraph or a PyTorch Geometric `Data`."""

    def __init__(self, x: torch.Tensor):
        self.x = x

    def to(self, device: Any, non_blocking: bool = False) -> Graph:
        return type(self)(self.x.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Graph:
        return type(self)(self.x.pin_memory())

    def record_stream(self, stream: torch.cuda.Stream) -> None:
        self.x.record_stream(stream)


class Instances:
    """An object with the interface of detectron2's `Instances`, without `record_stream`."""

    def __init__(self, x: torch.Tensor):
        self._fields = {"x": x}

    def to(self, *args: Any, **kwargs: Any) -> Instances:
        return Instances(self._fields["x"].to(*args, **kwargs))


def review_objects(gpu: CudaAccelerator) -> str:
    """Graphs and instances arrive intact, and stay intact when the loop drops them."""
    for kind in (Graph, Instances):
        _survives(gpu, [gpu.pin(kind(noise(16, seed=seed))) for seed in range(6)])
    return "2 kinds, 6 of 6 right"


def review_layouts(gpu: CudaAccelerator) -> str:
    """Sparse and jagged tensors are copied, and their memory is protected."""
    square = torch.eye(512)
    jagged = [torch.ones(200, 8), torch.ones(300, 8)]
    makes: dict[str, Callable[[], torch.Tensor]] = {
        "COO": lambda: square.to_sparse(),
        "CSR": lambda: square.to_sparse_csr(),
        "jagged": lambda: torch.nested.nested_tensor(jagged, layout=torch.jagged),
    }
    said = []
    for name, make in makes.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _survives(gpu, [{"a": make()} for _ in range(4)])
            said.append(f"{name}: copied")
        except (TypeError, RuntimeError, NotImplementedError) as error:
            said.append(f"{name}: {type(error).__name__} {str(error)[:120]}")
    assert all("copied" in line for line in said), said
    return ", ".join(said)


def review_default_device(gpu: CudaAccelerator) -> str:
    """Steps and the prefetcher work under `torch.set_default_device("cuda")`."""
    host = gpu.pin(noise(1))
    torch.set_default_device("cuda")
    try:
        losses = [gpu.step(batch, ms=0).item() for batch in CudaPrefetcher([host] * 3, gpu)]
    finally:
        torch.set_default_device(None)
    assert losses == [expected(host)] * 3, losses
    return "3 of 3 right"


def review_copies_back(gpu: CudaAccelerator) -> str:
    """A copy to the host is complete only after its event."""
    made = torch.ones(16_000_000, device=gpu.device)
    host = torch.zeros_like(made, device="cpu").pin_memory()
    early = late = 0
    for _ in range(50):
        host.zero_()
        gpu.step(None, ms=2)
        host.copy_(made, non_blocking=True)
        done = gpu.current_stream().record_event(gpu.Event())
        early += host[-1].item() != 1
        done.synchronize()
        late += host[-1].item() != 1
    assert early > 0, "No copy was read too early."
    assert late == 0, late
    return f"read immediately: {early} of 50 wrong, after the event: {late}"


def review_captured_graph(gpu: CudaAccelerator) -> str:
    """Watching records iterations while another thread captures a graph, which stays valid."""
    from threading import Event as Flag
    from threading import Thread

    from keepfed.measure.watch.timing.device import DeviceClock, device_in_use

    begun, marked, found = Flag(), Flag(), list[str]()
    x, told = torch.zeros(1024, device=gpu.device), list[float]()
    clock = DeviceClock(lambda number, idle_ns, work_ns: told.append(number))

    def capture() -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
                x.add_(1)
                begun.set()
                marked.wait(10)
        except RuntimeError as error:
            found.append(f"the capture fails: {str(error)[:80]}")

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
    assert not found, found
    assert len(told) >= 6, told
    return f"the capture survives, {len(told)} iterations recorded"


REVIEW: tuple[Callable[[CudaAccelerator], str], ...] = (
    review_objects,
    review_layouts,
    review_default_device,
    review_copies_back,
    review_captured_graph,  # last, because a failed capture may leave the device in an error state
)


def _survives(gpu: CudaAccelerator, hosts: list[Any]) -> None:
    """Serve `hosts` to slow steps, drop each batch immediately, and compare the results."""
    losses = []
    for batch in CudaPrefetcher(hosts, gpu):
        assert type(batch) is type(hosts[0]), type(batch)
        losses.append(gpu.step(batch, ms=10))
        del batch
    wanted = [
        float(checksum([part for tensor in tensors(host) for part in dense_parts(tensor)]))
        for host in hosts
    ]
    found = [loss.item() for loss in losses]
    assert found == wanted, f"{sum(a != b for a, b in zip(found, wanted, strict=True))} wrong"
    assert all(leaf.device.type == "cpu" for leaf in leaves(hosts) if hasattr(leaf, "device"))
