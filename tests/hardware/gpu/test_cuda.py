"""Parts of the CUDA interface that can be tested without CUDA; the rest is in tests/gpu."""

import pytest
import torch

from course_utils.hardware.gpu import PRESETS, Accelerator, EmulatedAccelerator
from course_utils.hardware.gpu import cuda as gpu_cuda
from course_utils.hardware.gpu.cuda import CudaAccelerator
from keepfed.device import cuda
from keepfed.device.cuda import host_time
from keepfed.measure.trace import record
from tests.hardware.fake_device import MS, FakeClock

AHEAD_MS = 5000  # time of the device's clock when the host's clock is 0


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def gpu(monkeypatch, clock):
    """An idle device whose clock is ahead; counts the waits for it."""

    class Event:
        def __init__(self, *, enable_timing=False, blocking=False):
            self.timing, self.blocking = enable_timing, blocking

        def record(self, stream):
            self.ms = clock.ms + AHEAD_MS

        def synchronize(self):
            clock.work(late_ms.pop() if late_ms else 0)

        def elapsed_time(self, end):
            assert self.timing
            assert end.timing
            return end.ms - self.ms

    class Busy:
        def __init__(self, device):
            pass

        def run(self, ms, occupancy):
            clock.work(ms)

    stand_ins = {
        "Event": Event,
        "Stream": lambda device, priority=0: (device, priority, object()),
        "memory_reserved": lambda device: 7,
        "current_stream": lambda device: object(),
        "current_device": lambda: 0,
        "get_device_name": lambda device: "NVIDIA H200",
        "synchronize": lambda device: waits.append(device),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(gpu_cuda, "BusyKernels", Busy)
    monkeypatch.setattr(gpu_cuda, "CudaLoss", lambda value, stream: value)
    monkeypatch.setattr(gpu_cuda, "device_tensors", lambda batch, device: cuda.tensors(batch))
    waits, late_ms = [], []
    device = CudaAccelerator(step_ms=20)
    device.device = torch.device("cpu")  # device of the tensors in this test
    device.waits, device.late_ms = waits, late_ms
    cuda.stream_for.cache_clear()
    yield device
    cuda.stream_for.cache_clear()


def test_spans_are_read_only_when_the_recording_ends(gpu, clock):
    clock.work(100)
    with record(clock=clock) as trace:
        batch = gpu.upload(torch.ones(3), non_blocking=True)
        clock.work(1)
        gpu.step(batch)
        clock.work(2)
        gpu.step(batch, ms=30)
        assert (trace.spans, gpu.waits) == ([], [])
    assert len(gpu.waits) == 1
    assert [(s.lane, s.stage, s.start_ns / MS, s.end_ns / MS) for s in trace.spans] == [
        ("copy", "transfer", 100, 100),
        ("gpu", "compute", 101, 121),
        ("gpu", "compute", 123, 153),
    ]
    assert trace.note == "NVIDIA H200"
    gpu.step(batch)
    with record(clock=clock) as second:
        gpu.step(batch)
    assert (len(second.spans), len(trace.spans)) == (1, 3)  # none is lost
    assert second.spans[0].start_ns == 173 * MS


def test_fastest_round_trip_of_an_anchor_synchronizes_the_clocks(gpu, clock):
    gpu.late_ms += [3, 3, 3, 0, 9, 2, 0, 1, 4, 8]  # five trips per anchor, the last one first
    with record(clock=clock) as trace:
        begun = clock.ms
        gpu.step(gpu.upload(torch.ones(3)), ms=30)
    assert [span.start_ns for span in trace.spans] == [(begun + 15) * MS] * 2
    assert gpu.late_ms == []


def test_step_and_kernel_results_belong_to_the_batch_they_read(gpu, clock):
    with record(clock=clock) as trace:
        trace.batch = 6
        batch = gpu.upload({"pulses": torch.ones(3)})
        turned = gpu.launch(lambda pair: {"turned": pair["pulses"].flip(0)}, batch, ms=1)
        trace.batch = 7
        gpu.step(batch)
        gpu.step(turned)
    lanes = sorted((span.lane, span.batch) for span in trace.spans)
    assert lanes == [("copy", 6)] + 3 * [("gpu", 6)]


def test_both_devices_have_the_same_interface_and_checksum(gpu):
    names = {name for name in vars(Accelerator) if not name.startswith("_")}
    assert names <= set(dir(CudaAccelerator))
    assert names <= set(dir(EmulatedAccelerator))
    batch = [torch.arange(5), torch.ones(3)]
    emulated = EmulatedAccelerator(PRESETS["H200"], step_ms=0)
    assert float(gpu.step(gpu.upload(batch))) == emulated.step(emulated.upload(batch)).item()


def test_device_times_are_synchronized_at_both_ends():
    assert host_time(0, 1000, 5_000, 1_000_010_000) == 5_000
    assert host_time(1000, 1000, 5_000, 1_000_010_000) == 1_000_010_000
    # The device's second lasted 10,000 ns longer on the host, so half of that at half time.
    assert host_time(500, 1000, 0, 1_000_010_000) == 500_005_000


def test_batch_in_host_memory_or_on_another_gpu_is_rejected():
    with pytest.raises(ValueError, match=r"gpu\.upload\(batch\)"):
        gpu_cuda.device_tensors({"pulses": torch.ones(3)}, torch.device("cuda", 0))
    with pytest.raises(RuntimeError, match=r"on meta, but the step runs on cuda:0\. Upload"):
        gpu_cuda.device_tensors([torch.ones(3, device="meta")], torch.device("cuda", 0))
