"""The marks on a device, with events that a test lets pass."""

from __future__ import annotations

from itertools import count

import pytest
import torch

from keepfed.measure.watch.timing.device import MAX_PENDING, DeviceClock, device_in_use


class Event:
    """Passes when `reached` says so; its time is its number, in ms."""

    numbers = count()
    reached = -1
    device = 0  # whose stream is the current one

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.number = next(Event.numbers)

    def query(self) -> bool:
        return self.number <= Event.reached

    def elapsed_time(self, other: Event) -> float:
        assert other.query(), "asking for the time of what has not passed would wait for it"
        return float(other.number - self.number)


@pytest.fixture(autouse=True)
def _events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: Event.device)
    Event.numbers, Event.reached, Event.device = count(), -1, 0


def test_a_turn_is_told_once_its_last_event_has_passed_and_nobody_waits_for_that() -> None:
    told: list[tuple[float, float, float]] = []
    clock = DeviceClock(lambda *turn: told.append(turn))
    for number in range(3):  # events 0 and 1 are those around next() of turn 0, 2 and 3 of turn 1
        clock.asked()
        clock.got(number)
    assert told == []
    Event.reached = 3
    clock.asked()
    assert told == [(0, 1e6, 1e6)]
    Event.reached = 100
    clock.asked()
    assert told == [(number, 1e6, 1e6) for number in range(3)]


def test_what_ends_an_epoch_is_no_turn() -> None:
    told: list[float] = []
    clock = DeviceClock(lambda number, idle, work: told.append(number))
    clock.asked()
    clock.got(0)
    clock.forget()
    Event.reached = 100
    clock.asked()
    clock.got(1)
    clock.asked()
    assert told == [1]


def test_a_device_that_is_far_behind_takes_no_more_memory() -> None:
    clock = DeviceClock(lambda *turn: None)
    for number in range(3 * MAX_PENDING):
        clock.asked()
        clock.got(number)
    assert len(clock._pending) == MAX_PENDING


def test_turns_on_two_devices_are_dropped() -> None:
    told: list[float] = []
    clock = DeviceClock(lambda number, idle, work: told.append(number))
    Event.reached = 100
    for number in range(5):
        Event.device = int(number >= 2)
        clock.asked()
        clock.got(number)
    assert told == [0, 2, 3]  # turn 1 ends on the other device


class Refused(Event):
    def elapsed_time(self, other: Event) -> float:
        raise RuntimeError("CUDA error: invalid resource handle")


class Captured(Event):
    def query(self) -> bool:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")


@pytest.mark.parametrize("event", [Refused, Captured])
def test_an_error_of_cuda_ends_the_marks_and_not_the_loop(
    event: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "Event", event)
    Event.reached = 100
    clock = DeviceClock(lambda *turn: None)
    for number in range(3):
        clock.asked()
        clock.got(number)
    assert next(Event.numbers) == 3  # no mark after the error


def test_a_program_that_has_not_started_cuda_has_no_device() -> None:
    if not torch.cuda.is_initialized():
        assert not device_in_use()
        assert not torch.cuda.is_initialized()
