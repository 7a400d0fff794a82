"""What CudaPrefetcher asks of a device, and what the emulated device makes of it."""

import itertools
from contextlib import contextmanager, nullcontext

import pytest
import torch

from course_utils.hardware.gpu import CudaDevice, EmulatedDevices, checksum, cuda
from course_utils.loading.prefetch import CudaPrefetcher
from course_utils.measure.spans import hidden_share, stage
from course_utils.measure.trace import record
from tests.hardware.fake_device import FakeClock, fake_device, megabytes

MB = 1_000_000


class Log(list):
    """A device that copies nothing and writes down what it is asked for, in order."""

    def __init__(self):
        self.streams = []
        self.now = self.user = LoggedStream(self, "user")

    def Stream(self):
        self.streams.append(LoggedStream(self, "copies"))
        return self.streams[-1]

    @contextmanager
    def stream(self, stream):
        before, self.now = self.now, stream
        yield
        self.now = before

    def current_stream(self):
        return self.now

    def upload(self, batch, *, non_blocking=False):
        assert non_blocking
        self.append(f"copy {batch} on {self.now.name}")
        return LoggedTensor(self, batch)

    def is_pinned(self, batch):
        return True


class LoggedStream:
    def __init__(self, log, name):
        self.log, self.name, self.events = log, name, itertools.count()

    def record_event(self):
        event = LoggedEvent(self.log, f"{self.name} {next(self.events)}")
        self.log.append(f"mark {event.name}")
        return event

    def wait_event(self, event):
        self.log.append(f"{self.name} waits for {event.name}")


class LoggedEvent:
    def __init__(self, log, name):
        self.log, self.name = log, name

    def synchronize(self):
        self.log.append(f"host waits for {self.name}")


class LoggedTensor:
    def __init__(self, log, number):
        self.log, self.number = log, number

    def record_stream(self, stream):
        self.log.append(f"batch {self.number} is read on {stream.name}")


STEP = [
    "user waits for copies {0}",
    "batch {0} is read on user",
    "step {0} on user",
    "mark user {0}",
]
COPY = ["copy {0} on copies", "mark copies {0}"]
WAIT = ["host waits for user {0}"]


@pytest.mark.parametrize(
    ("depth", "order"),
    [
        (1, "copy 0, copy 1, step 0, copy 2, step 1, wait 0, copy 3, step 2, wait 1, step 3"),
        (2, "copy 0, copy 1, copy 2, step 0, copy 3, step 1, wait 0, step 2, wait 1, step 3"),
    ],
)
def test_copies_are_launched_before_the_steps_before_them_and_waited_for_by_event(depth, order):
    log = Log()
    for batch in CudaPrefetcher(range(4), log, depth=depth):
        log.append(f"step {batch.number} on {log.now.name}")
    orders = {"copy": COPY, "step": STEP, "wait": WAIT}
    parts = (part.split() for part in order.split(", "))
    assert log == [line.format(number) for kind, number in parts for line in orders[kind]]


def test_one_stream_serves_all_epochs():
    log = Log()
    prefetcher = CudaPrefetcher(range(3), log)
    for _ in range(3):
        assert len(list(prefetcher)) == 3
    assert len(log.streams) == 1


def test_the_stream_of_the_loop_is_asked_for_at_each_batch():
    log = Log()
    stream = iter(CudaPrefetcher(range(3), log))
    next(stream)
    log.now = LoggedStream(log, "other")
    next(stream)
    assert log[-2:] == ["other waits for copies 1", "batch 1 is read on other"]


def losses(gpu, batches, *, late=False):
    found = []
    for batch in batches:
        found.append(gpu.step(batch))
        del batch
        if not late:
            found[-1].item()
    return [loss.item() for loss in found]


@pytest.mark.parametrize("late", [False, True], ids=["each loss read", "losses read late"])
@pytest.mark.parametrize("depth", [1, 3])
def test_twenty_of_twenty_runs_have_the_right_checksums(depth, late):
    batches = [megabytes(0.5, seed=seed) for seed in range(6)]
    wanted = [checksum([batch]).item() for batch in batches]
    for run in range(20):
        gpu, _ = fake_device()
        prefetcher = CudaPrefetcher(gpu.pinned(batches), gpu, depth=depth)
        with gpu.stream(gpu.Stream()) if run == 0 else nullcontext():  # the loop may have its own
            assert losses(gpu, prefetcher, late=late) == wanted


@pytest.mark.parametrize(
    ("step_ms", "hidden", "total_ms"), [(20, 1.0, 15 + 10 * 20), (5, 9 * 5 / (9 * 15), 10 * 15 + 5)]
)
def test_copies_but_the_first_are_hidden_as_far_as_the_steps_go_even_if_each_loss_is_read(
    step_ms, hidden, total_ms
):
    gpu, clock = fake_device(step_ms=step_ms)
    batches = [megabytes(30)] * 10  # 15 ms each
    with record(clock=clock) as trace:
        losses(gpu, CudaPrefetcher(gpu.pinned(batches), gpu))
    copies = [span for span in trace.spans if span.lane == "copy"]
    others = [span for span in trace.spans if span is not copies[0]]
    assert hidden_share(others) == pytest.approx(hidden)
    assert clock.ms == total_ms


def test_two_batches_are_on_the_device_if_the_loop_drops_its_own_and_else_three():
    gpu, _ = fake_device()
    losses(gpu, CudaPrefetcher(gpu.pinned([megabytes(1)] * 8), gpu))
    assert gpu.max_memory_allocated() == 2 * MB
    for batch in CudaPrefetcher(gpu.pinned([megabytes(1)] * 8), gpu):
        gpu.step(batch).item()
    assert gpu.max_memory_allocated() == 3 * MB


@pytest.mark.parametrize("depth", [1, 2])
def test_a_loop_that_reads_no_loss_piles_up_no_batches_and_never_lets_the_device_run_dry(depth):
    gpu, clock = fake_device(step_ms=20)
    losses(gpu, CudaPrefetcher(gpu.pinned([megabytes(1)] * 30), gpu, depth=depth), late=True)
    assert gpu.max_memory_allocated() == (depth + 2) * MB
    assert clock.ms == 0.5 + 30 * 20


def test_memory_is_flat_over_forty_epochs():
    gpu, _ = fake_device()
    prefetcher = CudaPrefetcher(gpu.pinned([megabytes(0.25)] * 4), gpu)
    peaks = set()
    for _ in range(40):
        losses(gpu, prefetcher)
        peaks.add(gpu.max_memory_allocated())
        assert gpu.memory_allocated() == 0
    assert peaks == {500_000}


def test_spans_carry_the_number_of_their_batch():
    gpu, clock = fake_device()
    batches = list(gpu.pinned([megabytes(1)] * 4))
    with record(clock=clock) as trace:
        for _ in range(2):
            for batch in CudaPrefetcher(trace.batches(batches), gpu, depth=2):
                with stage("compute"):
                    gpu.step(batch).item()
            assert trace.batch == -1
    for lane, name in [("copy", "transfer"), ("gpu", "compute"), ("main", "compute")]:
        found = [span.batch for span in trace.spans if (span.lane, span.stage) == (lane, name)]
        assert found == list(range(8))
    with record(clock=clock) as trace:
        for _ in CudaPrefetcher(trace.batches(batches), gpu):
            break
        assert trace.batch == -1


def test_a_rank_copies_to_its_own_gpu():
    clock = FakeClock()
    gpus = EmulatedDevices(2, clock=clock)
    gpus.set_device(1)
    prefetcher = CudaPrefetcher(gpus[0].pinned([megabytes(1)] * 3), gpus.current())
    gpus.set_device(0)
    assert {batch.device for batch in prefetcher} == {gpus[1].name}


@pytest.fixture
def two_cuda_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(cuda.CudaDevice, "Stream", lambda self: None)


@pytest.mark.parametrize(
    ("device", "index"),
    [("cuda", 1), ("cuda:0", 0), ("cuda:1", 1), (torch.device("cuda"), 1), (None, 1)],
    ids=str,
)
def test_a_cuda_device_is_fixed_when_the_prefetcher_is_made(
    device, index, two_cuda_devices, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    gpu = CudaPrefetcher([], device).device
    assert isinstance(gpu, CudaDevice)
    assert gpu.device == torch.device("cuda", index)


def test_a_third_of_two_cuda_devices_is_refused(two_cuda_devices):
    with pytest.raises(RuntimeError, match=r"cuda:2 is not here \(CUDA devices: 2\)"):
        CudaPrefetcher([], "cuda:2")


def test_what_is_on_a_device_already_need_not_be_pinned(two_cuda_devices):
    gpu = CudaPrefetcher([], "cuda").device
    assert gpu.is_pinned({"elsewhere": torch.zeros(1, device="meta"), "name": "event"})
    assert not gpu.is_pinned({"elsewhere": torch.zeros(1, device="meta"), "here": torch.zeros(1)})
