from collections.abc import Callable, Sequence
from typing import Any

import pytest

from keepfed.measure.accelerator import ACCELERATOR
from keepfed.measure.advice import Measurements
from keepfed.measure.diagnosis.loop import DiagnosedLoop
from keepfed.measure.diagnosis.replay import Replay
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.diagnosis.run_estimates import estimate, may_be_oversubscribed, one_thread_gain
from keepfed.measure.diagnosis.three_runs import ThreeRuns
from keepfed.measure.records import Fetch, Iteration
from keepfed.measure.trace import Trace
from tests.measure.handmade import figure, span, trace_of

MB = 10**6
MS = 10**6  # nanoseconds


def fetch(number: int, worker: int = 0, *, wall_ms: int = 100, **changes: int) -> Fetch:
    """Return a fetch that collates for 5 ms and computes for 20 ms."""
    made = Fetch(
        worker, 0, (wall_ms - 5) * MS, wall_ms * MS, 20 * MS, 20 * MS, 30 * MS * number, 10 * MS,
        asked_bytes=1000 * number, disk_bytes=0, own_bytes=0, pool_threads=1,
    )  # fmt: skip
    return made._replace(**changes)


def fetches(count: int = 5, **changes: int) -> list[Fetch]:
    return [fetch(number, **changes) for number in range(count)]


def run(*, iteration_s: float = 0.05, epochs: int = 1, first_s: float = 0.1, **more: Any) -> Run:
    """Return epochs with a first batch after `first_s` and further ones every `iteration_s`."""
    pids = list(range(more.pop("workers", 0)))
    made = Run(more.pop("trace", Trace(clock=lambda: 0)), dropped=1, pids=pids, **more)
    start_ns, iteration_ns = 0, round(iteration_s * 1e9)
    for epoch in range(epochs):
        made.starts_ns.append(start_ns)
        for place in range(10):
            got_ns = start_ns + round(first_s * 1e9) + place * iteration_ns
            asked_ns = start_ns if place == 0 else got_ns - iteration_ns
            row = len(made.iterations), epoch, place, asked_ns, got_ns, got_ns
            made.iterations.append(Iteration(*row, total_cpu_ns=place * MS, total_delay_ns=0))
        start_ns = made.iterations[-1].left_ns
        made.lengths.append(10)
    return made


def estimated(alone: Run, step: Run, together: Run) -> Measurements:
    return estimate([], ThreeRuns(alone, step, together, Replay(DiagnosedLoop([], print)), 0.0))


def figures(found: Sequence[Fetch] = (), step: Run | None = None) -> Measurements:
    return estimated(run(workers=2, fetches=list(found)), step or run(), run())


def test_fetches_give_the_measurements() -> None:
    for found, expected in (
        (fetches(), {"fetch_s": 0.1, "delay_s": 0.01, "waiting_s": 0.07}),
        (fetches(process_cpu_ns=60 * MS), {"computing_s": 0.06}),  # pool threads compute too
        # the first fetch of each worker opens files and imports modules
        (
            [fetch(n, w, wall_ms=100 if n else 9000) for w in (0, 1) for n in (0, 1)],
            {"fetch_s": 0.1},
        ),
        (fetches(4) + fetches(4), {"asked_bytes": 1000}),  # the workers restarted
        ([*fetches(20), fetch(20, wall_ms=2000)], {"slow_share": 1 / 20, "slow_time": 0.514}),
        (
            [fetch(n, own_bytes=10 * MB * (n + 1)) for n in range(9)],
            {"own_bytes": 10 * MB, "grown_bytes": 70 * MB, "grown_late_bytes": 30 * MB},
        ),
        (fetches(9), {"own_bytes": 0, "grown_bytes": 0}),
        ([], {"fetch_s": 0.05, "computing_s": 0.001}),  # not a DataLoader,
    ):
        measured = {name: figure(figures(found), name) for name in expected}
        assert measured == pytest.approx(expected, rel=0.01), found


def test_child_processes_busy_during_the_step_are_not_loaders() -> None:
    alone, step = run(children_cores=0.9), run(children_cores=0.5)  # cores
    assert estimated(alone, step, run()).fetching.computing_s == pytest.approx(0.001 + 0.4 * 0.05)
    assert estimated(step, alone, run()).fetching.computing_s == pytest.approx(0.001)


def test_limits_of_a_container_count(emulate_cgroup: Callable[..., None]) -> None:
    emulate_cgroup(
        {"cpu.max": "200000 100000", "memory.max": "500000000", "memory.current": "400000000"}
    )
    alone = run(workers=4, cores=set(range(8)), fetches=fetches())
    found = estimated(alone, run(), run())
    assert (found.setting.cores, found.setting.worker_cores) == (2, 2)
    assert found.setting.free_bytes == 100 * MB


def test_start_up_is_the_first_wait_without_the_fetch() -> None:
    alone = run(first_s=2.1, epochs=2, workers=2, fetches=fetches())
    found = estimated(alone, run(), run(first_s=3.1))
    assert (found.paces.start_up_s, found.paces.epoch) == (pytest.approx(2.0), 10)
    assert found.start_up_share_s == pytest.approx(0.2)


def test_step_with_spans_is_divided_into_its_parts() -> None:
    spans = []
    for start in range(0, 500, 50):
        spans += [span("copy", "transfer", start, start + 20)]
        spans += [span("gpu", "compute", start + 10, start + 40)]
    step = run(first_s=0.05, trace=trace_of(*spans))
    for place, one in enumerate(step.iterations):  # a step waits for no batch
        begun_ns = one.left_ns - 50 * MS
        step.iterations[place] = one._replace(asked_ns=begun_ns, got_ns=begun_ns)
    found = figures(step=step)  # half of each copy overlaps the computation
    parts = (found.step.compute_s, found.step.transfer_s, found.step.host_s)
    assert parts == pytest.approx((0.03, 0.01, 0.01))
    assert (figures().step.compute_s, figures().step.host_s) == (None, None)


def test_step_has_a_device_only_if_it_used_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ACCELERATOR, "is_available", lambda: True)
    assert not figures().step.has_device
    assert figures(step=run(used_device=True)).step.has_device
    assert figures(step=run(trace=trace_of(span("gpu", "compute", 0, 40)))).step.has_device


def test_busy_thread_pools_are_tried_with_one_thread() -> None:
    for process_cpu, pool_threads, tried in ((40, 8, True), (40, 1, False), (21, 8, False)):
        found = fetches(process_cpu_ns=process_cpu * MS, pool_threads=pool_threads)
        assert may_be_oversubscribed(run(fetches=found)) is tried
    alone = run(workers=2, fetches=fetches(process_cpu_ns=40 * MS))
    for process_cpu, gain in ((40, 1.0), (4, 2.5)):
        trial = run(iteration_s=0.02, fetches=fetches(process_cpu_ns=process_cpu * MS))
        assert one_thread_gain(alone, trial) == pytest.approx(gain)
