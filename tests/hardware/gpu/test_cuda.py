"""What of the CUDA skin can be checked without CUDA; the rest is in tests/gpu."""

from dataclasses import dataclass

import pytest
import torch

from course_utils.hardware.gpu import PRESETS, Accelerator, EmulatedAccelerator
from course_utils.hardware.gpu import cuda as gpu_cuda
from course_utils.hardware.gpu.cuda import CudaAccelerator
from keepfed.device import cuda
from keepfed.device.cuda import CudaDevice, host_time
from keepfed.measure.trace import record
from tests.hardware.fake_device import MS, FakeClock

AHEAD_MS = 5000  # what the device's clock reads when the host's reads 0


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def gpu(monkeypatch, clock):
    """An idle device whose clock is ahead; counts how often it is waited for."""

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
    monkeypatch.setattr(gpu_cuda, "Work", Busy)
    monkeypatch.setattr(gpu_cuda, "CudaLoss", lambda value, stream: value)
    for module in (cuda, gpu_cuda):
        monkeypatch.setattr(module, "device_tensors", lambda batch, device: cuda.tensors(batch))
    waits, late_ms = [], []
    device = CudaAccelerator(step_ms=20)
    device.device = torch.device("cpu")  # where the tensors of this test are
    device.waits, device.late_ms = waits, late_ms
    cuda.stream_for.cache_clear()
    yield device
    cuda.stream_for.cache_clear()


def test_spans_are_read_when_the_recording_ends_and_not_before(gpu, clock):
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
    assert (len(second.spans), len(trace.spans)) == (1, 3)  # each has its own, nobody's are lost
    assert second.spans[0].start_ns == 173 * MS


def test_of_the_round_trips_of_an_anchor_the_quickest_ties_the_clocks(gpu, clock):
    gpu.late_ms += [3, 3, 3, 0, 9, 2, 0, 1, 4, 8]  # of five trips each, the last one first
    with record(clock=clock) as trace:
        begun = clock.ms
        gpu.step(gpu.upload(torch.ones(3)), ms=30)
    assert [span.start_ns for span in trace.spans] == [(begun + 15) * MS] * 2
    assert gpu.late_ms == []


def test_all_who_copy_ahead_share_one_stream_of_a_device_and_anchors_have_a_prior_one(gpu):
    first, second = (torch.device("cuda", index) for index in range(2))
    copies = CudaDevice(first).copy_stream
    assert CudaDevice(first).copy_stream is copies
    assert CudaDevice(second).copy_stream[:2] == (second, 0)
    assert cuda.stream_for("anchors", first, -1)[:2] == (first, -1)


def test_a_host_that_waits_for_an_event_leaves_its_core_to_the_workers(gpu):
    assert gpu.Event().blocking


def test_memory_in_use_is_that_of_steps_too_whose_batches_were_dropped(gpu, monkeypatch):
    figures = {"active_bytes.all.current": 64, "active_bytes.all.peak": 96}
    figures |= {"allocated_bytes.all.current": 0, "allocated_bytes.all.peak": 32}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: figures)
    assert (gpu.memory_allocated(), gpu.max_memory_allocated()) == (64, 96)


def test_a_dataclass_is_pinned_only_if_it_can_pin_itself_as_by_a_loader(gpu, monkeypatch):
    @dataclass
    class Plain:
        pulses: torch.Tensor

    class Pinnable(Plain):
        def pin_memory(self):
            raise NotImplementedError  # in the loop its tensors are pinned

    pinned = list[torch.Tensor]()
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    list(gpu.pinned([Plain(torch.ones(2)), Pinnable(torch.ones(3)), {"a": [torch.ones(4)]}]))
    assert [len(tensor) for tensor in pinned] == [3, 4]


def test_a_step_belongs_to_the_batch_it_reads_and_so_does_what_a_kernel_makes_of_it(gpu, clock):
    with record(clock=clock) as trace:
        trace.batch = 6
        batch = gpu.upload({"pulses": torch.ones(3)})
        turned = gpu.launch(lambda pair: {"turned": pair["pulses"].flip(0)}, batch, ms=1)
        trace.batch = 7
        gpu.step(batch)
        gpu.step(turned)
    lanes = sorted((span.lane, span.batch) for span in trace.spans)
    assert lanes == [("copy", 6)] + 3 * [("gpu", 6)]


def test_pinning_is_work_of_the_main_process(gpu, clock, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: clock.work(3) or tensor)
    with record(clock=clock) as trace:
        gpu.pin({"pulses": torch.ones(3), "name": "event"})
    assert trace.spans == [("main", "transfer", 0, 3 * MS, -1)]


def test_both_devices_have_the_whole_interface_and_one_checksum(gpu):
    names = {name for name in vars(Accelerator) if not name.startswith("_")}
    assert names <= set(dir(CudaAccelerator))
    assert names <= set(dir(EmulatedAccelerator))
    batch = [torch.arange(5), torch.ones(3)]
    emulated = EmulatedAccelerator(PRESETS["H200"], step_ms=0)
    assert float(gpu.step(gpu.upload(batch))) == emulated.step(emulated.upload(batch)).item()


def test_device_times_are_tied_to_the_host_at_both_ends_and_drift_in_proportion():
    assert host_time(0, 1000, 5_000, 1_000_010_000) == 5_000
    assert host_time(1000, 1000, 5_000, 1_000_010_000) == 1_000_010_000
    # the device's second was 10,000 ns longer on the host: half of that at half time
    assert host_time(500, 1000, 0, 1_000_010_000) == 500_005_000


def test_a_batch_in_host_memory_is_refused():
    with pytest.raises(ValueError, match=r"gpu\.upload\(batch\)"):
        cuda.device_tensors({"pulses": torch.ones(3)}, torch.device("cuda", 0))


def test_a_step_refuses_a_batch_of_another_gpu():
    sentence = "batch is on the meta and the step on the cuda:0: upload it to the GPU that computes"
    with pytest.raises(RuntimeError, match=sentence):
        cuda.device_tensors([torch.ones(3, device="meta")], torch.device("cuda", 0))
