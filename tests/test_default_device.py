"""The course works under `torch.set_default_device`, because every new tensor names its device."""

import ast
from collections.abc import Iterator

import torch
from torch.utils._device import _device_constructors

from course_utils.hardware.gpu import checksum, timed_accelerator
from course_utils.paths import REPO
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.trace import record

FACTORIES = {function.__name__ for function in _device_constructors()}


def test_every_torch_factory_call_names_its_device() -> None:
    assert [
        f"{path.relative_to(REPO)}:{call.lineno}"
        for path in sorted((REPO / "course_utils").rglob("*.py"))
        if not {"exercises", "stories"} & {*path.parts}  # as a learner writes it
        for call in _factory_calls(path.read_text("utf-8"))
        if not _names_device(call)
    ] == []


def test_emulated_device_ignores_default_device() -> None:
    gpu, clock = timed_accelerator("H200", step_ms=1, emulate=True)
    host = torch.arange(1000, device="cpu")
    with torch.device("meta"), record(clock=clock) as trace:
        batches = CudaPrefetcher(trace.batches(gpu.pinned([host] * 20)), gpu)
        losses = [gpu.step(batch).item() for batch in batches]
        doubled = gpu.launch(lambda batch: batch * 2, gpu.upload(gpu.pin(host)), ms=1).cpu()
        with gpu.stream(gpu.Stream()):
            early = gpu.upload(gpu.pin(host), non_blocking=True)
        garbage = early.cpu()
    assert losses == [checksum([host]).item()] * 20
    assert doubled.equal(host * 2)
    assert garbage.view(torch.uint8).eq(0xA5).all()


def _factory_calls(text: str) -> Iterator[ast.Call]:
    """Yield calls of `torch.NAME(...)`, and of names imported from torch, that create tensors."""
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "torch"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in FACTORIES:
                yield node
            case ast.Name(id=name) if imported.get(name) in FACTORIES:
                yield node


def _names_device(call: ast.Call) -> bool:
    return any(keyword.arg == "device" for keyword in call.keywords)
