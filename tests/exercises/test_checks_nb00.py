"""The checks of notebook 00: what the switches show, and what the learner's own loop did."""

from dataclasses import replace

import pytest

from course_utils.measure.simulate import Pipeline, simulate
from course_utils.measure.trace import Trace
from course_utils.teaching.exercise import check
from course_utils.teaching.explorer import Explorer, explorer
from notebooks.exercises.nb00.ex1_use_the_switches import JOB

NAIVE = Pipeline(read_ms=500, step_ms=100, steps=24, batch_size=32, sync=False)


@pytest.fixture(scope="module")
def box() -> Explorer:
    return explorer(load_ms=(20, 80), step_ms=(50, 100))


@pytest.mark.parametrize(
    ("state", "status", "says"),
    [
        ({"strategy": "naive", "workers": 1}, "todo", "Switch strategy"),
        ({"strategy": "naive", "workers": 1, "load": 20}, "wrong", "another job"),
        ({"strategy": "CUDA prefetch", "workers": 2, "step": 100}, "wrong", "another job"),
        ({"strategy": "prefetch", "workers": 1}, "wrong", "does not make the loading faster"),
        ({"strategy": "prefetch", "workers": 4}, "wrong", "copy to the GPU"),
        ({"strategy": "pinned", "workers": 2}, "wrong", "same stream"),
        ({"strategy": "CUDA prefetch", "workers": 2}, "right", "hide behind"),
        ({"strategy": "streaming", "workers": 1}, "right", "hide behind"),
    ],
)
def test_the_switches_are_judged(
    box: Explorer, state: dict[str, str | int], status: str, says: str
) -> None:
    box.state = {**JOB, **state}
    verdict = check("00.1", box)
    assert (verdict.status, says in verdict.message) == (status, True)


def loop(**changes: int) -> Trace:
    return simulate(replace(NAIVE, **changes))  # type: ignore[arg-type]


def repeating() -> Trace:
    trace = loop(num_workers=6)
    trace.sample_ids = [0] * trace.samples
    return trace


@pytest.mark.parametrize(
    ("fed", "status", "says"),
    [
        (loop(), "todo", "naive"),
        (loop(num_workers=6, steps=5), "wrong", "does less"),
        (loop(num_workers=6, batch_size=8, steps=96), "wrong", "another job"),
        (loop(num_workers=2, prefetch_factor=16), "wrong", "side by side"),
        (repeating(), "wrong", "void"),
        (loop(num_workers=6), "right", "all distinct"),
    ],
    ids=["naive", "fewer steps", "smaller batch", "deeper prefetch", "repeats", "six workers"],
)
def test_the_own_loader_is_judged(fed: Trace, status: str, says: str) -> None:
    verdict = check("00.2", loop(), fed)
    assert (verdict.status, says in verdict.message) == (status, True)
