"""The course works under `torch.set_default_device`, because every new tensor names its device."""

import torch

from course_utils.hardware.gpu import checksum, timed_accelerator
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.trace import record


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
