"""Exercises that ask for a rule: the cases tell slips apart, and the truth is the course's."""

from collections import Counter
from typing import Any

import pytest

from course_utils.exercises.judging import Slips
from course_utils.exercises.nb04 import ex1_choose_workers
from course_utils.exercises.nb04.ex1_choose_workers import enough, needed_mb, smallest
from course_utils.exercises.nb04.problem import MACHINES, Machine
from course_utils.exercises.nb08 import ex2_where_to_augment
from course_utils.teaching.exercise import check
from keepfed.measure.simulate import Pipeline, simulate
from tests.exercises.solutions import assert_refused


@pytest.mark.parametrize(
    ("key", "slips"), [("04.1", ex1_choose_workers.SLIPS), ("08.2", ex2_where_to_augment.SLIPS)]
)
def test_the_cases_tell_each_slip_from_the_others(key: str, slips: Slips[Any, Any]) -> None:
    for misconception, (_, *rules) in slips.items():
        for rule in rules:
            assert_refused(check(key, rule), misconception)


def test_the_rule_for_workers_agrees_with_the_model() -> None:
    def idle(machine: Machine, workers: int) -> float:
        loop = Pipeline(
            read_ms=machine.read_ms,
            decode_ms=machine.cpu_ms,
            step_ms=machine.step_ms,
            num_workers=workers,
            cores=machine.cores,
            storage_streams=machine.streams,
            steps=200,
        )
        return 1 - simulate(loop).summary().au

    for name, machine in MACHINES.items():
        assert idle(machine, enough(machine)) < 0.01, name
        assert idle(machine, enough(machine) - 1) > 0.1, name


def test_every_limit_decides_on_some_hidden_machine() -> None:
    limits: Counter[str] = Counter()
    for m in ex1_choose_workers.hidden_machines(60):
        limits["cores"] += m.cpu_ms / m.cores > m.step_ms
        limits["storage"] += m.read_ms / m.streams > m.step_ms
        limits["memory"] += needed_mb(m, enough(m)) > m.free_mb
        limits["nothing"] += smallest(m) is not None
    assert len(limits) == 4
    assert min(limits.values()) >= 8, limits
