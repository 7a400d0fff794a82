"""What of the CUDA skin can be checked without CUDA; the rest is in tests/gpu."""

from contextlib import contextmanager

import pytest
import torch

from course_utils.hardware.gpu import PRESETS, Accelerator, EmulatedAccelerator, cuda
from course_utils.hardware.gpu.cuda import CudaAccelerator, Work, host_time
from course_utils.measure.trace import record
from tests.hardware.fake_device import MS, FakeClock

AHEAD_MS = 5000  # what the device's clock reads when the host's reads 0


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def gpu(monkeypatch, clock):
    """An idle device whose clock is ahead; counts how often it is waited for."""

    class Event:
        def __init__(self, *, enable_timing=False):
            self.timing = enable_timing

        def record(self, stream):
            self.ms = clock.ms + AHEAD_MS

        def synchronize(self):
            pass

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
        "Stream": lambda device: object(),
        "current_stream": lambda device: object(),
        "current_device": lambda: 0,
        "get_device_name": lambda device: "NVIDIA H200",
        "synchronize": lambda device: waits.append(device),
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(cuda, "Work", Busy)
    monkeypatch.setattr(cuda, "CudaLoss", lambda value, stream: value)
    monkeypatch.setattr(cuda, "_device_tensors", cuda.leaves)
    waits = []
    device = CudaAccelerator(step_ms=20)
    device.device = torch.device("cpu")  # where the tensors of this test are
    device.waits = waits
    return device


def test_spans_are_read_when_the_recording_ends_and_not_before(gpu, clock):
    clock.work(100)
    with record(clock=clock) as trace:
        batch = gpu.upload(torch.ones(3), non_blocking=True)
        clock.work(1)
        gpu.step(batch)
        clock.work(2)
        gpu.step(batch, ms=30)
        assert trace.spans == []
        assert len(gpu.waits) == 0
    assert len(gpu.waits) == 1
    assert [(s.lane, s.stage, s.start_ns / MS, s.end_ns / MS) for s in trace.spans] == [
        ("copy", "transfer", 100, 100),
        ("gpu", "compute", 101, 121),
        ("gpu", "compute", 123, 153),
    ]
    assert trace.note == "NVIDIA H200"


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


def test_cycles_are_counted_on_the_accelerators_own_device(monkeypatch):
    used = []

    @contextmanager
    def device(wanted):
        used.append(wanted)
        yield
        used.append("left")

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch.cuda, "_sleep", used.append)
    work = Work.__new__(Work)
    work.device, work._ms_per_cycle = torch.device("cuda", 1), 0.01
    work.run(5, occupancy=0.1)
    assert used == [torch.device("cuda", 1), 500, "left"]


def test_each_recording_has_its_own_spans_and_without_one_nothing_is_kept(gpu, clock):
    gpu.step(gpu.upload(torch.ones(3)))
    assert gpu._marks is None
    traces = []
    for _ in range(2):
        with record(clock=clock) as trace:
            gpu.step(gpu.upload(torch.ones(3)))
        traces.append(trace)
    assert [len(trace.spans) for trace in traces] == [2, 2]
    assert traces[0].spans[-1].end_ns <= traces[1].spans[0].start_ns


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
        cuda._device_tensors({"pulses": torch.ones(3)})
