from dataclasses import replace
from typing import Any

import pytest

from keepfed.measure.records import UNKNOWN
from keepfed.measure.watch.watched_loop import watched_loops
from tests.measure.watch.handmade import MS, loop


def test_watched_loop_gets_cause() -> None:
    for made, cause in (
        ({}, "storage"),
        ({"cpu": 9.5}, "CPU"),
        ({"wait": 0.2, "work": 20.0}, "GPU-bound"),
        ({"cpu": 9.5, "collate": 8.0}, "collate or IPC"),
        ({"slow": dict.fromkeys(range(7, 100, 20), 400.0)}, "uneven"),
        ({"wait": 0.1, "work": 9.0, "first": 5000.0, "fetch": 4.0}, "GPU-bound"),  # starts once
        ({"wait": 9.0, "idle": 0.1}, "GPU-bound"),  # the device still had work during the wait
        ({"workers": 0, "takes": "no DataLoader"}, "storage"),
    ):
        (found,) = watched_loops([loop(**made)])
        assert found.finding.cause == cause, made


def test_measurements_match_recorded_times() -> None:
    m = watched_loops([loop(wait=6.0, work=3.0, fetch=12.0, cpu=2.0, collate=0.5)])[0].measurements
    assert m.paces.together_s == pytest.approx(9e-3)
    assert (m.paces.wait_s, m.paces.step_s) == pytest.approx((6e-3, 3e-3))
    assert (m.fetching.fetch_s, m.fetching.computing_s) == pytest.approx((12e-3, 2e-3))
    assert m.fetching.collate_s == pytest.approx(0.5e-3)
    assert m.moving.receiving_s == pytest.approx(0.05e-3)
    assert (m.setting.workers, m.setting.worker_cores, m.paces.epoch) == (2, 4, 100)
    one = loop()  # the sampler takes 40 of the 50 µs of CPU time in next()
    totals = replace(one.totals, sampled_ns=100 * 40_000, sampler_calls=100)
    m = watched_loops([replace(one, totals=totals)])[0].measurements
    assert (m.paces.sampling_s, m.moving.receiving_s) == pytest.approx((40e-6, 10e-6))
    m = watched_loops([loop(main_cores=1)])[0].measurements  # the container has one of four cores
    assert (m.setting.cores, m.setting.worker_cores) == (1, 1)


def test_sampled_short_fetches_are_weighted_by_count() -> None:
    slow = {number: 10.0 for number in range(100) if number % 5 < 2}  # both workers alternate
    one = loop(wait=9.0, fetch=1.0, slow=slow)
    fetches, totals = ({}, [0.0, 0.0])  # CPU ms of each worker, including 0.3 ms to send a batch
    for number, fetch in one.fetches.items():
        long, read = number in slow, number % 16 == 4
        cpu, delay = (8.0, 1.0) if long else (0.5, 0.25)
        totals[number % 2] += cpu + 0.3
        known = {"cpu_ns": cpu, "process_cpu_ns": cpu, "total_cpu_ns": totals[number % 2]}
        spent = {name: round(ms * 1e6) if long or read else UNKNOWN for name, ms in known.items()}
        delay_ns = round(delay * 1e6) if long or read else 0
        fetches[number] = fetch._replace(**spent, delay_ns=delay_ns)
    m = watched_loops([replace(one, fetches=fetches)])[0].measurements
    slow_share = sum(number > 1 for number in slow) / 98  # without the first fetch of each worker
    parts = (m.fetching.fetch_s, m.fetching.computing_s, m.fetching.delay_s)
    assert parts == tuple(
        pytest.approx((slow_share * long + (1 - slow_share) * short) * 1e-3)
        for long, short in ((10.0, 1.0), (8.0, 0.5), (1.0, 0.25))
    )
    assert m.moving.sending_s - m.moving.receiving_s == pytest.approx(0.3e-3, rel=0.2)


def test_lost_time_is_idle_time_of_device() -> None:
    m = watched_loops([loop(wait=6.0, work=4.0, idle=2.0)])[0].measurements
    assert (m.paces.wait_s, m.paces.step_s) == pytest.approx((2e-3, 8e-3))
    assert m.step.has_device


def test_short_or_threaded_loop_has_no_cause() -> None:
    assert watched_loops([loop(count=5)])[0].measurements is None
    threaded = replace(loop(), totals=replace(loop().totals, elsewhere=3))
    assert watched_loops([threaded])[0].finding is None


def test_skipped_iterations_count_like_timed_ones() -> None:
    one = loop(wait=0.06, work=0.02, fetch=0.05, cpu=0.05, collate=0.01, count=100)
    times = {"waited_ns": 5000 * 15_000, "worked_ns": 5000 * 5_000}
    totals = replace(one.totals, iterations=5000, timed=100, **times)
    (found,) = watched_loops([replace(one, totals=totals)])
    m = found.measurements  # not None, although the run lasted less than 0.5 s
    assert found.stride == 50
    assert (m.paces.together_s, m.paces.wait_s) == (pytest.approx(20e-6), pytest.approx(15e-6))


def test_equal_loaders_are_numbered_per_process() -> None:
    def at(first_ns: int, pid: int, wait: float) -> Any:
        one = loop(pid=pid, wait=wait)
        return replace(one, totals=replace(one.totals, first_ns=first_ns))

    found = watched_loops([at(2, 1, 1.0), at(1, 1, 2.0), at(3, 2, 3.0), at(4, 2, 4.0)])
    places = [(one.alike, one.observation.about["pid"]) for one in found]
    assert places == [(1, 2), (0, 2), (0, 1), (1, 1)]
    assert found[0].name == "Events, batch 32, 2 workers, at train.py:9, loader 2 of this kind"
    (found,) = watched_loops([loop(inner="trainer.py:412")])  # a package drives the loop
    assert found.name == "Events, batch 32, 2 workers, at train.py:9, in trainer.py:412"


def test_loop_that_restarts_loader_gets_advice() -> None:
    one = loop(wait=50.0, work=0.0, fetch=2.0, count=30)
    iterations = [each._replace(place=0, left_ns=UNKNOWN) for each in one.iterations]
    totals = replace(one.totals, epochs=0, worked_ns=0, began_ns=one.totals.waited_ns)
    (found,) = watched_loops([replace(one, iterations=iterations, totals=totals)])
    assert (found.finding.cause, found.finding.id) == ("start-up", "one-loop")
    assert found.finding.at_most


def test_start_of_workers_in_each_short_epoch_is_counted() -> None:
    one = loop(wait=1.0, work=3.0, fetch=4.0, cpu=3.5, count=180)
    starts = [  # the first one is quick, as on a machine that happens to be idle
        each._replace(place=each.number % 3, asked_ns=each.asked_ns - 120 * MS * (each.number > 0))
        if each.number % 3 == 0
        else each._replace(place=each.number % 3)
        for each in one.iterations
    ]
    ended = {"epochs": 60, "ended_ns": 60 * 80 * MS}
    waited_ns = sum(each.wait_ns for each in starts) + ended["ended_ns"]
    totals = replace(one.totals, **ended, waited_ns=waited_ns)
    (found,) = watched_loops([replace(one, iterations=starts, totals=totals)])
    assert found.measurements.paces.start_up_s == pytest.approx(0.197, abs=0.01)
    assert (found.finding.cause, found.finding.change) == ("start-up", "persistent_workers=True")


def test_time_of_loop_over_two_loaders_includes_both() -> None:
    one = loop(wait=16.0, work=10.0)
    iterations = [each._replace(left_ns=UNKNOWN) for each in one.iterations]
    alone = replace(one, iterations=iterations, totals=replace(one.totals, worked_ns=0))
    m = watched_loops([alone])[0].measurements
    assert (m.paces.together_s, m.paces.step_s) == pytest.approx((26e-3, 10e-3), rel=0.02)


def test_evidence_from_watching_selects_advice() -> None:
    for totals, about, advice in (
        ({"looks": 10, "held_up": 9}, {}, "one-at-a-time"),
        # only two of four workers send batches
        ({}, {"takes": "stream", "workers": 4}, "more-shards"),
        ({"sampled_ns": 70 * MS, "sampler_calls": 10}, {}, "plan-batches"),
    ):
        one = loop(wait=8.0, work=2.0)
        seen = replace(one, totals=replace(one.totals, **totals), about={**one.about, **about})
        assert watched_loops([seen])[0].finding.id == advice, totals
