from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from course_utils.measure.diagnosis.gauges import Fetch
from course_utils.measure.diagnosis.measurements import (
    Measurements,
    may_be_oversubscribed,
    measured,
)
from course_utils.measure.diagnosis.runs import Run, Turn
from course_utils.measure.trace import Trace
from tests.measure.handmade import span, trace_of

MB = 1e6


def fetch(number: int, worker: int = 0, **changes: float) -> Fetch:
    usual = Fetch(
        worker=worker,
        end=float(number),
        wall=0.1,
        cpu=0.02,
        process_cpu=0.02,
        delay=0.01,
        collate=0.005,
        total_cpu=0.03 * number,
        asked_bytes=1000.0 * number,
        disk_bytes=0.0,
        unique_bytes=0.0,
        pool_threads=1,
    )
    return usual._replace(**changes)


def run(
    *, turn_s: float = 0.05, turns: int = 10, epochs: int = 1, first_s: float = 0.1, **more: Any
) -> Run:
    """Return epochs whose first batch comes after `first_s`, each later one after `turn_s`."""
    made = Run(more.pop("trace", Trace(clock=lambda: 0)), dropped=1, **more)
    start = 0.0
    for epoch in range(epochs):
        made.starts.append(start)
        for place in range(turns):
            got = start + first_s + place * turn_s
            asked = start if place == 0 else got - turn_s
            made.turns.append(Turn(epoch, place, asked, got, got, 0.001 * place, 0.0))
        start = made.turns[-1].done
        made.lengths.append(turns)
    return made


def figures(fetches: Sequence[Fetch] = (), step: Run | None = None) -> Measurements:
    return measured([], run(workers=2, fetches=list(fetches)), step or run(), run())


def test_waiting_is_what_neither_computes_nor_lacks_a_core() -> None:
    found = figures([fetch(n) for n in range(5)])
    assert (found.fetch_s, found.delay_s) == pytest.approx((0.1, 0.01))
    assert found.waiting_s == pytest.approx(0.07)


def test_a_fetch_computes_while_its_thread_waits_for_a_pool() -> None:
    found = figures([fetch(n, process_cpu=0.06) for n in range(5)])
    assert found.computing_s == pytest.approx(0.06)


def test_the_first_fetch_of_each_worker_does_not_count() -> None:
    first = [fetch(0, worker, wall=9.0) for worker in (0, 1)]
    later = [fetch(n, worker) for n in (1, 2) for worker in (0, 1)]
    assert figures([*first, *later]).fetch_s == pytest.approx(0.1)


def test_bytes_are_counted_across_workers_that_began_anew() -> None:
    first, second = ([fetch(n) for n in range(4)] for _ in range(2))
    assert figures([*first, *second]).asked_bytes == pytest.approx(1000)


def test_start_up_is_what_the_first_batch_takes_beyond_its_fetch() -> None:
    alone = run(first_s=2.1, epochs=2, workers=2, fetches=[fetch(n) for n in range(5)])
    found = measured([], alone, run(), run(first_s=3.1))
    assert found.start_up_s == pytest.approx(2.0)
    assert found.epoch == 10
    assert found.start_up_share_s == pytest.approx(0.2)


def test_slow_fetches_are_counted_by_the_time_they_lose() -> None:
    fetches = [fetch(n) for n in range(20)] + [fetch(20, wall=2.0)]
    found = figures(fetches)
    assert found.slow_share == pytest.approx(1 / 20)
    assert found.slow_time == pytest.approx(0.5, abs=0.05)


def test_memory_grows_by_what_workers_have_at_the_end() -> None:
    fetches = [fetch(n, unique_bytes=10 * MB * (n + 1)) for n in range(9)]
    found = figures(fetches)
    assert found.own_bytes == 10 * MB
    assert found.grown_bytes == pytest.approx(70 * MB)
    assert found.grown_late_bytes == pytest.approx(30 * MB)
    assert figures([fetch(n) for n in range(9)]).grown_bytes == 0


def test_the_step_is_divided_by_what_ran() -> None:
    spans = []
    for n in range(10):
        start = 50 * n
        spans += [
            span("copy", "transfer", start, start + 20, n),
            span("gpu", "compute", start + 10, start + 40, n),
        ]
    step = run(first_s=0.05, trace=trace_of(*spans))
    for place, turn in enumerate(step.turns):  # a step waits for no batch
        step.turns[place] = turn._replace(asked=turn.done - 0.05, got=turn.done - 0.05)
    found = figures(step=step)
    assert found.compute_s == pytest.approx(0.03)
    assert found.transfer_s == pytest.approx(0.01)  # the rest of it runs beside the computation
    assert found.host_s == pytest.approx(0.01)


def test_a_step_without_spans_is_not_divided() -> None:
    found = figures()
    assert found.compute_s is None
    assert found.host_s == 0


def test_only_pools_that_compute_are_tried_with_one_thread() -> None:
    def busy(**changes: float) -> Run:
        return run(fetches=[fetch(n, **changes) for n in range(4)])

    assert may_be_oversubscribed(busy(process_cpu=0.04, pool_threads=8))
    assert not may_be_oversubscribed(busy(process_cpu=0.04, pool_threads=1))
    assert not may_be_oversubscribed(busy(process_cpu=0.021, pool_threads=8))


def test_threads_that_help_are_no_ailment() -> None:
    alone = run(turn_s=0.05, workers=2, fetches=[fetch(n, process_cpu=0.04) for n in range(5)])
    quicker = run(turn_s=0.02, fetches=[fetch(n, process_cpu=0.04) for n in range(5)])
    cheaper = run(turn_s=0.02, fetches=[fetch(n, process_cpu=0.004) for n in range(5)])
    assert measured([], alone, run(), run(), quicker).one_thread_gain == pytest.approx(1)
    assert measured([], alone, run(), run(), cheaper).one_thread_gain == pytest.approx(2.5)
