from typing import Any

import pytest

from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import Summary, hidden_share, summarize, union
from tests.measure.handmade import span, trace_of


def summary(*rows: tuple[str, str, float, float, int]) -> Summary:
    return summarize(trace_of(*(span(*row) for row in rows)))


def test_utilization_and_stall_of_a_serial_loop() -> None:
    serial = summary(
        ("main", "wait", 0, 60, 0),
        ("main", "read", 0, 40, 0),
        ("main", "decode", 40, 60, 0),
        ("gpu", "compute", 60, 100, 0),
        ("main", "wait", 100, 160, 1),
        ("main", "read", 100, 140, 1),
        ("gpu", "compute", 160, 200, 1),
    )
    assert (serial.utilization, serial.idle, serial.au) == (0.4, 0.6, 0.4)
    assert (serial.stall["read"], serial.stall["decode"]) == (0.4, 0.1)
    assert serial.stall["wait"] == pytest.approx(0.1)  # 140 to 160 is unexplained
    assert str(serial).startswith(
        "The GPU computed 40 % of 0.20 s and was idle 60 %,\nwaiting mostly for read 40 %, "
        "decode 10 %, the next batch 10 %.\nAU 40 % over 2 steps. "
    )
    assert str(summary(("main", "wait", 0, 5, 0))).endswith('stage("compute"): train(batch)')


def test_stall_counts_only_the_loading_of_the_awaited_batch() -> None:
    found = summary(
        ("worker 0", "read", 0, 10, 0),
        ("worker 1", "read", 0, 20, 1),
        ("gpu", "compute", 10, 15, 0),
        ("gpu", "compute", 20, 25, 1),
    )
    assert found.stall["read"] == pytest.approx(15 / 25)
    stall = summary(
        ("worker 0", "read", 0, 75, 1),
        ("gpu", "compute", 0, 80, 0),
        ("worker 0", "decode", 75, 100, 1),
        ("gpu", "compute", 100, 150, 1),
    ).stall
    assert (stall["read"], stall["decode"]) == pytest.approx((0.1, 1 / 30))  # 15 and 5 of 150 ms


def test_prefetching_loop_waits_for_the_batch_after_the_next() -> None:
    times: Any = {"read_ms": 80, "step_ms": 20, "copy_ms": 5}
    found = simulate(Pipeline(**times, num_workers=1, pinned=True, overlap=True)).summary()
    assert found.stall["read"] == pytest.approx(found.idle, abs=0.02)


def test_wait_for_other_ranks_is_not_loading() -> None:
    found = summary(
        ("gpu", "compute", 0, 10, 0),
        ("other ranks", "wait", 10, 50, 0),
        ("worker 0", "read", 20, 70, 1),
        ("main", "wait", 50, 70, 1),
        ("gpu", "compute", 70, 80, 1),
        ("other ranks", "wait", 80, 100, 1),
        ("main", "wait", 100, 110, 2),
        ("gpu", "compute", 110, 120, 2),
    )
    shares = [found.stall[stage] for stage in ("others", "read", "wait")]
    assert shares == pytest.approx([60 / 120, 20 / 120, 10 / 120])
    assert "waiting mostly for the other ranks 50 %" in str(found)


def test_gap_is_divided_into_copies_waiting_and_the_program() -> None:
    one_queue = summary(
        ("copy", "transfer", 0, 10, 0),
        ("copy", "transfer", 10, 20, 1),
        ("main", "wait", 0, 1, 0),
        ("gpu", "compute", 20, 40, 0),
        ("copy", "transfer", 40, 50, 2),  # another batch than that of the next step
        ("main", "wait", 52, 55, 1),
        ("gpu", "compute", 60, 80, 1),
    )
    shares = [one_queue.stall[stage] for stage in ("transfer", "wait", "host")]
    assert shares == pytest.approx([30 / 80, 3 / 80, 7 / 80])  # host: 50 to 52 and 55 to 60
    assert "mostly for copies 38 %, the program itself 9 %, the next batch 4 %." in str(one_queue)
    assert sum(one_queue.stall.values()) == pytest.approx(one_queue.idle)


def test_steps_run_on_the_gpu_or_the_main_process() -> None:
    for rows, utilization, au in (
        ([("gpu", "compute", 0, 10, 0), ("gpu", "compute", 5, 20, 1)], 1, 1),  # not counted twice
        ([("main", "wait", 0, 5, 0), ("main", "compute", 5, 10, 0)], 0.5, 0),  # without a GPU
        (
            [("main", "wait", 0, 90, 0), *(("gpu", "compute", t, t + 10, 0) for t in (90, 100))],
            2 / 11,
            1,
        ),
    ):
        found = summary(*rows)
        assert (found.utilization, found.au) == (pytest.approx(utilization), au), rows


def test_ledger_reports_repeated_samples_and_missing_ids() -> None:
    trace = trace_of(span("gpu", "compute", 0, 10))
    trace.serve(4, [1, 2, 1, 2])
    found = summarize(trace)
    assert (found.samples, found.distinct, found.complete) == (4, 2, False)
    assert "void" in str(found)
    trace.serve(2, None)
    assert summarize(trace).distinct is None


def test_hidden_share_is_the_overlap_with_steps() -> None:
    for copies, steps, share in (
        ([(0, 10)], [(10, 30)], 0.0),
        ([(10, 20)], [(0, 30)], 1.0),
        ([(0, 10), (20, 30)], [(8, 22)], 0.2),
        ([(0, 10)], [(0, 5), (4, 8)], 0.8),
        ([], [(0, 10)], 1.0),  # no copies,
    ):
        spans = [span("main", "wait", 0, 10)]  # does not count
        spans += [span("copy", "transfer", *times) for times in copies]
        spans += [span("gpu", "compute", *times) for times in steps]
        assert hidden_share(spans) == pytest.approx(share), copies
        assert union([(5, 7), (0, 2), (2, 3), (1, 2)]) == [(0, 3), (5, 7)], copies
