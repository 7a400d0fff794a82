"""What a fetch cost, where it computed, waited, or had no core."""

from types import SimpleNamespace

import pytest

from course_utils.measure.watch import fetches
from course_utils.measure.watch.fetches import Clocks
from course_utils.measure.watch.record import Turn

COMPUTED = 1_000_000


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the clocks of the fetching thread say."""
    now = SimpleNamespace(wall=100, cpu=50, delay=7_000_000)
    monkeypatch.setattr(fetches, "perf_counter_ns", lambda: now.wall)
    monkeypatch.setattr(fetches, "thread_time_ns", lambda: now.cpu)
    monkeypatch.setattr(fetches, "process_time_ns", lambda: now.cpu)
    monkeypatch.setattr(fetches, "delay_s", lambda: now.delay / 1e9)
    return now


def _fetched(listener: Clocks, now: SimpleNamespace, *, wall: int, delay: int) -> Turn:
    listener.fetch_begins([0])
    now.wall, now.cpu, now.delay = now.wall + wall, now.cpu + COMPUTED, now.delay + delay
    listener.samples_made()
    listener.batch_made("batch")
    assert listener.fetch is not None
    return Turn(0, 0, 0, 0, 0, 0, 0, -1, -1, *listener.fetch)


@pytest.mark.parametrize("before", ["a long one", "a short one"])
@pytest.mark.parametrize(
    ("delay", "without_core"),
    [
        pytest.param(3_000_000, 3_000_000, id="no core all the time that it did not compute"),
        pytest.param(1_200_000, 1_200_000, id="no core in a part of it"),
        pytest.param(0, 0, id="it waited, or the system does not tell"),
    ],
)
def test_what_a_slow_fetch_had_no_core_for_is_no_waiting(
    before: str, delay: int, without_core: int, now: SimpleNamespace
) -> None:
    listener = Clocks()
    for _ in range(2):
        _fetched(listener, now, wall=9_000_000 if before == "a long one" else 1_500_000, delay=0)
    turn = _fetched(listener, now, wall=4_000_000, delay=delay)
    assert (turn.cpu, turn.delay) == (COMPUTED, pytest.approx(without_core))


def test_a_slow_fetch_had_no_core_for_at_most_the_time_in_which_it_did_not_compute(
    now: SimpleNamespace,
) -> None:
    listener = Clocks()
    _fetched(listener, now, wall=1_500_000, delay=0)
    now.delay += 50_000_000  # in steps meanwhile, which nobody has read
    assert _fetched(listener, now, wall=4_000_000, delay=0).delay == 4_000_000 - COMPUTED


def test_what_short_fetches_had_no_core_for_is_read_in_some(now: SimpleNamespace) -> None:
    listener = Clocks()
    turns = [_fetched(listener, now, wall=1_500_000, delay=300_000) for _ in range(33)]
    read = [number for number, turn in enumerate(turns) if turn.cpu >= 0]
    assert read == [0, 16, 32]
    assert [turns[number].delay for number in read] == pytest.approx([300_000] * 3)
