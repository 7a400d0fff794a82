from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from keepfed.measure.records import UNKNOWN
from keepfed.measure.watch.figures import loops
from tests.keepfed.measure.watch.handmade import MS, loop


@pytest.mark.parametrize(
    ("made", "cause"),
    [
        ({}, "storage"),
        ({"cpu": 9.5}, "CPU"),
        ({"wait": 0.2, "work": 20.0}, "GPU-bound"),
        ({"cpu": 9.5, "collate": 8.0}, "collate or IPC"),
        ({"slow": dict.fromkeys(range(7, 100, 20), 400.0)}, "uneven"),
        ({"wait": 0.1, "work": 9.0, "first": 5000.0, "fetch": 4.0}, "start-up"),
        ({"wait": 9.0, "idle": 0.1}, "GPU-bound"),  # the device had work left meanwhile
        ({"workers": 0, "takes": "no DataLoader"}, "storage"),
    ],
)
def test_the_rules_of_a_diagnosis_judge_what_was_watched(made: dict[str, Any], cause: str) -> None:
    (found,) = loops([loop(**made)])
    assert found.cause == cause
    assert found.recommendation is not None


@pytest.mark.parametrize(
    ("about", "change"),
    [
        ({}, "give the dataset __getitems__(indices)"),
        ({"getitems": True}, "do what the dataset computes once"),
        ({"batch_size": None}, "do what the dataset computes once"),
        ({"takes": "stream"}, "do what the dataset computes once"),
        ({"batch_size": 2000}, "read each batch by one access: DataLoader(dataset, sampler="),
    ],
)
def test_small_samples_are_to_be_read_by_one_access_where_they_are_read_one_by_one(
    about: dict[str, Any], change: str
) -> None:
    quick = {"workers": 0, "wait": 4.0, "work": 4.0, "fetch": 4.0, "cpu": 4.0}
    (found,) = loops([loop(**{**quick, "takes": "batches of samples", **about})])
    assert found.recommendation is not None
    assert found.recommendation.change.startswith(change)


def test_what_was_measured_is_what_the_figures_say() -> None:
    m = loops([loop(wait=6.0, work=3.0, fetch=12.0, cpu=2.0, collate=0.5)])[0].measurements
    assert m is not None
    assert m.paces.together_s == pytest.approx(9e-3)
    assert (m.paces.wait_s, m.paces.step_s) == (pytest.approx(6e-3), pytest.approx(3e-3))
    assert (m.fetching.fetch_s, m.fetching.computing_s) == (
        pytest.approx(12e-3),
        pytest.approx(2e-3),
    )
    assert m.fetching.collate_s == pytest.approx(0.5e-3)
    assert m.moving.receiving_s == pytest.approx(0.05e-3)
    assert (m.setting.workers, m.setting.worker_cores, m.paces.epoch) == (2, 4, 100)
    m = loops([loop(main_cores=1)])[0].measurements  # in a container with one of the four
    assert m is not None
    assert (m.setting.cores, m.setting.worker_cores) == (1, 1)


def test_short_fetches_that_are_rarely_measured_count_as_often_as_they_came() -> None:
    slow = {number: 10.0 for number in range(100) if number % 5 < 2}  # of two workers, in turns
    one = loop(wait=9.0, fetch=1.0, slow=slow)
    fetches, totals = (
        {},
        [0.0, 0.0],
    )  # of each worker: 0.3 ms go into sending a batch
    for number, fetch in one.fetches.items():
        long, read = number in slow, number % 16 == 4
        cpu, delay = (8.0, 1.0) if long else (0.5, 0.25)
        totals[number % 2] += cpu + 0.3
        known = {"cpu_ns": cpu, "process_cpu_ns": cpu, "total_cpu_ns": totals[number % 2]}
        spent = {name: round(ms * 1e6) if long or read else UNKNOWN for name, ms in known.items()}
        delay_ns = round(delay * 1e6) if long or read else 0
        fetches[number] = fetch._replace(**spent, delay_ns=delay_ns)
    m = loops([replace(one, fetches=fetches)])[0].measurements
    assert m is not None
    slow_share = sum(number > 1 for number in slow) / 98  # without the first of each worker
    parts = (m.fetching.fetch_s, m.fetching.computing_s, m.fetching.delay_s)
    assert parts == tuple(
        pytest.approx((slow_share * long + (1 - slow_share) * short) * 1e-3)
        for long, short in ((10.0, 1.0), (8.0, 0.5), (1.0, 0.25))
    )
    assert m.moving.sending_s - m.moving.receiving_s == pytest.approx(0.3e-3, rel=0.2)


def test_of_a_device_only_the_idle_time_by_its_own_clock_is_lost() -> None:
    m = loops([loop(wait=6.0, work=4.0, idle=2.0)])[0].measurements
    assert m is not None
    assert (m.paces.wait_s, m.paces.step_s, m.step.has_device) == (
        pytest.approx(2e-3),
        pytest.approx(8e-3),
        True,
    )


def test_too_few_iterations_and_those_in_another_thread_have_no_verdict() -> None:
    assert loops([loop(count=5)])[0].measurements is None
    threaded = loop()
    threaded = replace(threaded, totals=threaded.totals._replace(elsewhere=3))
    assert loops([threaded])[0].cause is None


def test_iterations_that_were_skipped_count_as_much_as_timed_ones() -> None:
    one = loop(wait=0.06, work=0.02, fetch=0.05, cpu=0.05, collate=0.01, count=100)
    totals = one.totals._replace(
        iterations=5000, timed=100, waited_ns=5000 * 15_000, worked_ns=5000 * 5_000
    )
    (found,) = loops([replace(one, totals=totals)])
    m = found.measurements  # though they lasted less than half a second
    assert m is not None
    assert found.stride == 50
    assert (m.paces.together_s, m.paces.wait_s) == (pytest.approx(20e-6), pytest.approx(15e-6))


def test_loaders_that_read_alike_are_numbered_in_each_process() -> None:
    def at(first_ns: int, pid: int, wait: float) -> Any:
        one = loop(pid=pid, wait=wait)
        return replace(one, totals=one.totals._replace(first_ns=first_ns))

    found = loops([at(2, 1, 1.0), at(1, 1, 2.0), at(3, 2, 3.0), at(4, 2, 4.0)])
    assert [(one.alike, one.seen.about["pid"]) for one in found] == [(1, 2), (0, 2), (0, 1), (1, 1)]
    assert found[0].name == "Events, batch 32, 2 workers, at train.py:9, number 2 of its kind"


def test_workers_whose_batches_cost_more_to_move_than_to_make_are_not_needed() -> None:
    one = loop(wait=5.0, work=1.0, fetch=0.5, cpu=0.4, collate=0.05)
    fetches = {n: fetch._replace(total_cpu_ns=n * 3_000_000) for n, fetch in one.fetches.items()}
    told = loops([replace(one, fetches=fetches)])[0].recommendation
    assert told is not None
    assert (told.change, round(told.gain, 1)) == ("num_workers=0", 4.0)


def test_a_loop_that_begins_again_for_each_batch_is_told_so() -> None:
    one = loop(wait=50.0, work=0.0, fetch=2.0, count=30)
    iterations = [each._replace(place=0, left_ns=UNKNOWN) for each in one.iterations]
    totals = one.totals._replace(epochs=0, worked_ns=0, began_ns=one.totals.waited_ns)
    (found,) = loops([replace(one, iterations=iterations, totals=totals)])
    assert found.recommendation is not None
    assert (found.cause, found.recommendation.advice) == ("start-up", "one-loop")
    assert found.recommendation.at_most


def test_the_time_that_a_loop_over_two_loaders_takes_is_that_of_both() -> None:
    one = loop(wait=16.0, work=10.0)
    iterations = [each._replace(left_ns=UNKNOWN) for each in one.iterations]
    alone = replace(one, iterations=iterations, totals=one.totals._replace(worked_ns=0))
    m = loops([alone])[0].measurements
    assert m is not None
    assert (m.paces.together_s, m.paces.step_s) == pytest.approx((26e-3, 10e-3), rel=0.02)


@pytest.mark.parametrize(
    ("totals", "about", "advice"),
    [
        ({"looks": 10, "held_up": 9}, {}, "one-at-a-time"),
        ({}, {"takes": "stream", "workers": 4}, "more-shards"),  # all by two of the four
        ({"sampled_ns": 70 * MS, "sampler_calls": 10}, {}, "plan-batches"),
    ],
)
def test_what_was_looked_at_while_watching_decides_what_is_advised(
    totals: dict[str, int], about: dict[str, Any], advice: str
) -> None:
    one = loop(wait=8.0, work=2.0)
    seen = replace(one, totals=one.totals._replace(**totals), about={**one.about, **about})
    found = loops([seen])[0].recommendation
    assert found is not None
    assert found.advice == advice
