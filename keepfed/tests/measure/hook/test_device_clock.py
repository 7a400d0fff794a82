"""Times of a loop on the clock of the device, and bounds of steps without marks."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from keepfed.measure.hook import DeviceClock, step_bounds
from keepfed.measure.spans import AT_MOST, stage
from keepfed.measure.trace import Trace, record

MS = 1_000_000


class Gpu:
    """A device with one stream. Work starts when it is launched and earlier work is done."""

    def __init__(self) -> None:
        self.ms = self.free_ms = 0.0
        self.index = self.events = 0
        self.fails = ""  # method of an event that raises an error

    def clock(self) -> int:
        return round(self.ms * MS)

    def work(self, ms: float) -> None:
        self.ms += ms

    def launch(self, ms: float) -> None:
        self.free_ms = max(self.ms, self.free_ms) + ms

    def check(self, method: str) -> None:
        if method == self.fails:
            raise RuntimeError(f"CUDA error: {method} is not permitted")


class Event:
    gpu: Gpu

    def __init__(self, *, enable_timing: bool):
        self.gpu.events += enable_timing

    def record(self) -> None:
        self.gpu.check("record")
        self.reached_ms = max(self.gpu.ms, self.gpu.free_ms)

    def query(self) -> bool:
        self.gpu.check("query")
        return self.gpu.ms >= self.reached_ms

    def synchronize(self) -> None:
        self.gpu.ms = max(self.gpu.ms, self.reached_ms)

    def elapsed_time(self, end: "Event") -> float:
        self.gpu.check("elapsed_time")
        assert end.gpu.ms >= end.reached_ms, "this would wait for an incomplete event"
        return end.reached_ms - self.reached_ms


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Event.gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: gpu.index)
    monkeypatch.setattr(step_bounds, "device_in_use", lambda: True)
    return gpu


def test_iterations_without_all_marks_on_one_device_are_dropped(gpu: Gpu) -> None:
    reported: list[float] = []
    for change, expected in (
        ("end of an epoch", [0, 2, 3]),
        ("second device", [0, 2, 3]),
        ("no request", [2, 3]),  # such as while a graph is captured
    ):
        gpu.index = 0
        reported.clear()
        clock = DeviceClock(lambda number, *_: reported.append(number))
        for number in range(4):
            if number != 1 or change != "no request":
                clock.asked()
            clock.got(number)
            if number == 1 and change == "end of an epoch":
                clock.forget()
            gpu.index = int(number >= 1 and change == "second device")
        clock.asked()
        assert reported == expected, change


def test_cuda_error_stops_the_clock_but_not_the_loop(gpu: Gpu) -> None:
    for method, events in (("record", 1), ("query", 3), ("elapsed_time", 3)):
        gpu.events, gpu.fails = 0, method
        clock = DeviceClock(lambda *iteration: None)
        for number in range(3):
            clock.asked()
            clock.got(number)
        clock.finish()
        assert gpu.events == events, method  # no mark after the error


def loader(gpu: Gpu, load_ms: float) -> Iterator[Any]:
    for _ in range(3):
        gpu.work(load_ms)
        yield torch.zeros(4)


def train(gpu: Gpu, load_ms: float, step: Callable[[], Any], *, stop: bool = False) -> Trace:
    gpu.ms = gpu.free_ms = 0
    with record(clock=gpu.clock) as trace:
        for _ in trace.batches(loader(gpu, load_ms)):
            step()
            if stop:
                break
        gpu.work(500)
    return trace


def times(trace: Trace, lane: str) -> list[tuple[float, float]]:
    compute = (s for s in trace.spans if (s.lane, s.stage) == (lane, "compute"))
    return [(s.start_ns / MS, s.end_ns / MS) for s in compute]


def test_device_computes_at_most_from_a_batch_to_the_next_request(gpu: Gpu) -> None:
    def step() -> None:
        gpu.work(1)
        gpu.launch(10)

    trace = train(gpu, 30, step)
    # The device is idle until its first kernel, but the events do not show this.
    assert times(trace, "gpu") == [(30, 41), (61, 72), (92, 103)]
    assert str(trace.summary()).startswith(
        "The GPU computed at most 33 % of 0.10 s and was idle at least 67 %,\n"
        "waiting mostly for the next batch 68 %.\nAU at most "
    )
    assert (trace.note, times(trace, "main")) == (AT_MOST, [])
    assert "GPU computes at most 33 %" in trace.timeline().picture.sentence
    # If the loader is fast, the host is ahead of the device.
    assert times(train(gpu, 2, step), "gpu") == [(2, 13), (13, 23), (23, 33)]
    assert times(train(gpu, 2, step, stop=True), "gpu") == [(2, 13)]


def test_only_one_source_says_when_steps_compute(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def marked() -> None:
        with stage("compute"):
            gpu.work(4)

    def copied() -> None:
        with stage("transfer"):
            gpu.work(1)
        gpu.work(3)

    def breaks() -> None:
        gpu.work(4)
        gpu.fails = "record"

    body = [(2, 6), (8, 12), (14, 18)]
    for step, in_use, expected, bound in (
        (marked, True, body, False),
        (copied, False, [(start + 1, end) for start, end in body], True),
        (breaks, True, body, True),  # otherwise the lane of the device would end here
    ):
        monkeypatch.setattr(step_bounds, "device_in_use", lambda in_use=in_use: in_use)
        trace = train(gpu, 2, step)
        assert (times(trace, "gpu"), times(trace, "main")) == ([], expected), step
        assert (trace.summary().at_most, AT_MOST in trace.note) == (bound, bound), step


def test_thread_that_prefetches_says_nothing_about_steps(gpu: Gpu) -> None:
    with record(clock=gpu.clock) as trace:
        thread = threading.Thread(target=lambda: list(trace.batches(loader(gpu, 2))))
        thread.start()
        thread.join()
    assert 'mark the step: with stage("compute")' in str(trace.summary())
