from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

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


USUAL = {"end": 0.0, "wall": 0.1, "cpu": 0.02, "process_cpu": 0.02, "delay": 0.01}
USUAL |= {"collate": 0.005, "disk_bytes": 0.0, "unique_bytes": 0.0, "pool_threads": 1}


def fetch(number: int, worker: int = 0, **changes: float) -> Fetch:
    totals = {"total_cpu": 0.03 * number, "asked_bytes": 1000.0 * number}
    return Fetch(worker=worker, **{**USUAL, **totals, **changes})


def fetches(count: int = 5, **changes: float) -> list[Fetch]:
    return [fetch(number, **changes) for number in range(count)]


def run(*, turn_s: float = 0.05, epochs: int = 1, first_s: float = 0.1, **more: Any) -> Run:
    """Return epochs whose first batch comes after `first_s`, each later one after `turn_s`."""
    made = Run(more.pop("trace", Trace(clock=lambda: 0)), dropped=1, **more)
    start = 0.0
    for epoch in range(epochs):
        made.starts.append(start)
        for place in range(10):
            got = start + first_s + place * turn_s
            asked = start if place == 0 else got - turn_s
            made.turns.append(Turn(epoch, place, asked, got, got, 0.001 * place, 0.0))
        start = made.turns[-1].done
        made.lengths.append(10)
    return made


def figures(found: Sequence[Fetch] = (), step: Run | None = None) -> Measurements:
    return measured([], run(workers=2, fetches=list(found)), step or run(), run())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (fetches(), {"fetch_s": 0.1, "delay_s": 0.01, "waiting_s": 0.07}),
        (fetches(process_cpu=0.06), {"computing_s": 0.06}),  # in threads of a pool
        # the first fetch of each worker opens files and imports
        ([fetch(0, w, wall=9.0) for w in (0, 1)] + [fetch(1, w) for w in (0, 1)], {"fetch_s": 0.1}),
        (fetches(4) + fetches(4), {"asked_bytes": 1000}),  # the workers began anew
        ([*fetches(20), fetch(20, wall=2.0)], {"slow_share": 1 / 20, "slow_time": 0.514}),
        (
            [fetch(n, unique_bytes=10 * MB * (n + 1)) for n in range(9)],
            {"own_bytes": 10 * MB, "grown_bytes": 70 * MB, "grown_late_bytes": 30 * MB},
        ),
        (fetches(9), {"own_bytes": 0, "grown_bytes": 0}),
        ([], {"fetch_s": 0.05, "computing_s": 0.001}),  # of no DataLoader only the whole is known
    ],
)
def test_figures_follow_from_the_fetches(found: list[Fetch], expected: dict[str, float]) -> None:
    assert {name: getattr(figures(found), name) for name in expected} == pytest.approx(
        expected, rel=0.01
    )


def test_children_that_are_busy_beside_the_step_too_do_not_load() -> None:
    alone, step = run(children=0.9), run(children=0.5)  # cores
    assert measured([], alone, step, run()).computing_s == pytest.approx(0.001 + 0.4 * 0.05)
    assert measured([], step, alone, run()).computing_s == pytest.approx(0.001)


def test_a_container_with_a_part_of_the_machine_is_judged_by_its_part(
    in_group: Callable[..., None],
) -> None:
    in_group({"cpu.max": "200000 100000", "memory.max": "500000000", "memory.current": "400000000"})
    alone = run(workers=4, cores=set(range(8)), fetches=fetches())
    found = measured([], alone, run(), run())
    assert (found.cores, found.worker_cores, found.free_bytes) == (2, 2, 100 * MB)


def test_start_up_is_what_the_first_batch_takes_beyond_its_fetch() -> None:
    alone = run(first_s=2.1, epochs=2, workers=2, fetches=fetches())
    found = measured([], alone, run(), run(first_s=3.1))
    assert (found.start_up_s, found.epoch) == (pytest.approx(2.0), 10)
    assert found.start_up_share_s == pytest.approx(0.2)


def test_the_step_is_divided_by_what_ran_if_it_says_so() -> None:
    spans = []
    for start in range(0, 500, 50):
        spans += [span("copy", "transfer", start, start + 20)]
        spans += [span("gpu", "compute", start + 10, start + 40)]
    step = run(first_s=0.05, trace=trace_of(*spans))
    for place, turn in enumerate(step.turns):  # a step waits for no batch
        step.turns[place] = turn._replace(asked=turn.done - 0.05, got=turn.done - 0.05)
    found = figures(step=step)  # a third of a copy runs beside the computation
    parts = (found.compute_s, found.transfer_s, found.host_s)
    assert parts == pytest.approx((0.03, 0.01, 0.01))
    assert (figures().compute_s, figures().host_s) == (None, 0)


def test_a_step_has_a_device_if_it_used_one_and_not_because_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    assert not figures().has_device
    assert figures(step=run(used_device=True)).has_device
    assert figures(step=run(trace=trace_of(span("gpu", "compute", 0, 40)))).has_device


def test_pools_that_compute_are_tried_with_one_thread_and_those_that_help_are_no_ailment() -> None:
    for process_cpu, pool_threads, tried in ((0.04, 8, True), (0.04, 1, False), (0.021, 8, False)):
        found = fetches(process_cpu=process_cpu, pool_threads=pool_threads)
        assert may_be_oversubscribed(run(fetches=found)) is tried
    alone = run(workers=2, fetches=fetches(process_cpu=0.04))
    for process_cpu, gain in ((0.04, 1.0), (0.004, 2.5)):
        trial = run(turn_s=0.02, fetches=fetches(process_cpu=process_cpu))
        found = measured([], alone, run(), run(), trial)
        assert found.one_thread_gain == pytest.approx(gain)
