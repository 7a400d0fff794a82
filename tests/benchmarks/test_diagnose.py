from itertools import islice

import pytest

from benchmarks.diagnose import __main__ as benchmark
from benchmarks.diagnose.__main__ import Found, batch_s
from benchmarks.diagnose.loops import CAUSES, FIXED, LOOPS, loop


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_every_loop_and_every_fixed_loop_runs() -> None:
    for name in LOOPS:
        for make in (LOOPS[name], *FIXED[name].values()):
            with loop(make) as (loader, step):
                batches = iter(loader)
                for batch in islice(batches, 2):
                    step(batch)
                del batches


def test_enough_loops_have_a_predicted_gain_and_fixes_are_known() -> None:
    assert sum(cause not in ("GPU-bound", "memory") for cause in CAUSES.values()) >= 25
    assert set(FIXED) <= set(LOOPS) == set(CAUSES)


def test_prediction_is_compared_with_the_real_gain() -> None:
    assert Found("", "CPU", "", predicted=3.0, real=2.0).ratio == 1.5
    assert Found("", "CPU", "", predicted=3.0).ratio is None


def test_time_per_batch_includes_start_and_end_of_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(benchmark.time, "perf_counter", lambda: float(next(now)))
    monkeypatch.setattr(benchmark, "SECONDS", 1000.0)
    # Each reading of the clock is a tick later: nine batches up to the last, one for the epoch's
    # end.
    assert batch_s([0] * 9, lambda batch: None) == pytest.approx(10 / 9)
