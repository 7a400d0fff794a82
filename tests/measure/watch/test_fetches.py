"""What a fetch cost, where it computed, waited, or had no core."""

import math
from types import SimpleNamespace

import pytest

from course_utils.measure.watch import fetches
from course_utils.measure.watch.fetches import Clocks
from course_utils.measure.watch.record import Turn

LASTED, COMPUTED = 4_000_000, 1_000_000


@pytest.mark.parametrize(
    ("waits_after", "without_core"),
    [
        pytest.param(7, LASTED - COMPUTED, id="ready all the time"),
        pytest.param(8, 0, id="waited of its own accord"),
        pytest.param(math.nan, 0, id="the system does not tell"),
    ],
)
def test_a_slow_fetch_that_never_waited_had_no_core(
    waits_after: float, without_core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SimpleNamespace(wall=100, cpu=50, waits=7.0)
    clocks = SimpleNamespace(
        perf_counter_ns=lambda: now.wall,
        thread_time_ns=lambda: now.cpu,
        process_time_ns=lambda: now.cpu,
    )
    monkeypatch.setattr(fetches, "time", clocks)
    monkeypatch.setattr(fetches, "waits", lambda: now.waits)
    listener = Clocks()
    listener.fetch_begins([0])
    now.wall, now.cpu, now.waits = now.wall + LASTED, now.cpu + COMPUTED, waits_after
    listener.samples_made()
    listener.batch_made("batch")
    assert listener.fetch is not None
    turn = Turn(0, 0, 0, 0, 0, 0, 0, -1, -1, *listener.fetch)
    assert (turn.cpu, turn.delay) == (COMPUTED, without_core)
