"""Device clock, with CUDA events that the tests control."""

from __future__ import annotations

from itertools import count

import pytest
import torch

from keepfed.measure.watch.timing.device import DeviceClock


class Event:
    """Event that completes once `reached` is at least its number, which is also its time in ms."""

    numbers = count()
    reached = -1
    device = 0  # device of the current stream

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.number = next(Event.numbers)

    def query(self) -> bool:
        return self.number <= Event.reached

    def elapsed_time(self, other: Event) -> float:
        assert other.query(), "elapsed_time would wait for an event that has not completed"
        return float(other.number - self.number)


@pytest.fixture(autouse=True)
def _events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: Event.device)
    Event.numbers, Event.reached, Event.device = count(), -1, 0


def test_clock_reports_iteration_after_its_last_event() -> None:
    reported: list[tuple[float, float, float]] = []
    clock = DeviceClock(lambda *iteration: reported.append(iteration))
    for number in range(3):  # events 0 and 1 belong to iteration 0, events 2 and 3 to iteration 1
        clock.asked()
        clock.got(number)
    assert reported == []
    Event.reached = 3
    clock.asked()
    assert reported == [(0, 1e6, 1e6)]
    Event.reached = 100
    clock.asked()
    assert reported == [(number, 1e6, 1e6) for number in range(3)]


def test_clock_ignores_end_of_epoch() -> None:
    reported: list[float] = []
    clock = DeviceClock(lambda number, idle, work: reported.append(number))
    clock.asked()
    clock.got(0)
    clock.forget()
    Event.reached = 100
    clock.asked()
    clock.got(1)
    clock.asked()
    assert reported == [1]


def test_iterations_on_two_devices_are_dropped() -> None:
    reported: list[float] = []
    clock = DeviceClock(lambda number, idle, work: reported.append(number))
    Event.reached = 100
    for number in range(5):
        Event.device = int(number >= 2)
        clock.asked()
        clock.got(number)
    assert reported == [0, 2, 3]  # iteration 1 ends on the other device


class Refused(Event):
    def elapsed_time(self, other: Event) -> float:
        raise RuntimeError("CUDA error: invalid resource handle")


class Captured(Event):
    def query(self) -> bool:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


@pytest.mark.parametrize("event", [Refused, Captured])
def test_cuda_error_stops_clock_but_not_loop(
    event: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", event)
    Event.reached = 100
    clock = DeviceClock(lambda *iteration: None)
    for number in range(3):
        clock.asked()
        clock.got(number)
    assert next(Event.numbers) == 3  # no mark after the error
