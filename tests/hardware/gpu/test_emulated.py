from dataclasses import replace

import pytest
import torch

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator, checksum, timed_accelerator
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.trace import record
from tests.hardware.fake_device import FakeClock, fake_device, megabytes


def test_invalid_step_is_rejected():
    gpu, _ = fake_device()
    for wrong in ({"ms": -1}, {"occupancy": 0}, {"occupancy": 1.5}):
        with pytest.raises(ValueError, match="must be"):
            gpu.step(None, **wrong)
    with pytest.raises(ValueError, match=r"gpu\.upload\(batch\)"):
        gpu.step({"pulses": torch.ones(3)})


def test_two_gpus_compute_in_parallel_and_reject_each_others_data():
    kinds = [replace(PRESETS["RTX 3090"], name=name) for name in "ab"]
    clock = FakeClock()
    first, second = (EmulatedAccelerator(kind, step_ms=20, clock=clock) for kind in kinds)
    host = megabytes(4)
    with record(clock=clock) as trace:
        first.step(None)
        second.step(None)
    assert [span.start_ns for span in trace.spans] == [0, 0]
    assert trace.note == "emulated a, emulated b"
    with pytest.raises(RuntimeError, match=r"on emulated b, .* on emulated a\. Upload"):
        first.step(second.upload(host))
    assert first.step(first.upload(host)).item() == checksum([host]).item()


def test_default_device_of_torch_changes_nothing():
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
