from __future__ import annotations

from itertools import islice

import pytest

from benchmarks.diagnose import __main__ as benchmark
from benchmarks.diagnose.__main__ import Found, batch_s
from benchmarks.diagnose.loops import CAUSES, LOOPS, MENDED, loop


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("name", LOOPS)
def test_every_loop_runs_and_so_does_the_one_that_followed_the_advice(name: str) -> None:
    for make in (LOOPS[name], *MENDED[name].values()):
        with loop(make) as (loader, step):
            batches = iter(loader)
            for batch in islice(batches, 2):
                step(batch)
            del batches


def test_there_are_enough_loops_with_a_speed_to_predict_and_each_mended_one_is_known() -> None:
    assert sum(cause not in ("GPU-bound", "memory") for cause in CAUSES.values()) >= 25
    assert set(MENDED) <= set(LOOPS) == set(CAUSES)


def test_a_prediction_is_held_against_what_was_gained() -> None:
    assert Found("", "CPU", "", predicted=3.0, real=2.0).ratio == 1.5
    assert Found("", "CPU", "", predicted=3.0).ratio is None


def test_a_batch_costs_its_share_of_the_start_and_the_end_of_each_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(benchmark, "SECONDS", 1000.0)
    # each reading is a tick later: nine batches until the last, and one until the epoch is over
    assert batch_s([0] * 9, lambda batch: None) == pytest.approx(10 / 9)
