"""Judge rules and numbers: right, or wrong just as somebody with a known misconception is wrong."""

from collections.abc import Callable, Iterable, Sequence
from math import isclose
from typing import Any, NamedTuple, TypeVar

import numpy as np

from course_utils.teaching.exercise import Verdict, expect, right, wrong

Case = TypeVar("Case")
Answer = TypeVar("Answer")
# what somebody answers in each case, the idea behind it, and the next step
Slip = tuple[Callable[[Case], Answer], str, str]


def judge_rule(
    rule: Callable[[Case], Any],
    *,
    cases: Sequence[Case],
    truth: Callable[[Case], Answer],
    slips: Iterable[Slip[Case, Answer]],
    read: Callable[[Case, Any], Answer],
    same: Callable[[Answer, Answer], bool],
    praise: str,
    otherwise: Callable[[Case, Answer, Answer], tuple[str, str]],
) -> Verdict:
    """Judge the learner's `rule` by what it answers in all the cases.

    Args:
        rule: from a case to an answer.
        cases: those that the learner sees, and hidden ones.
        truth: the right rule.
        slips: known wrong rules; the first that agrees in every case names the misconception.
        read: from a case and what the rule returned to an answer; refuses what is none.
        same: whether an answer (first) is as good as another.
        praise: for who is right in every case.
        otherwise: from the first case that differs, the answer and the true one to a misconception
            and a next step.
    """
    answers = [read(case, rule(case)) for case in cases]

    def agrees(other: Callable[[Case], Answer]) -> bool:
        return all(same(one, other(case)) for case, one in zip(cases, answers, strict=True))

    if agrees(truth):
        return right(praise)
    for slip, misconception, next_step in slips:
        if agrees(slip):
            return wrong(misconception, next_step)
    rows = ((case, one, truth(case)) for case, one in zip(cases, answers, strict=True))
    return wrong(*otherwise(*next(row for row in rows if not same(*row[1:]))))


def read_number(value: Any, refusal: str, next_step: str) -> float:
    """Return `value` as a float; refuse what is no number."""
    numeric = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    expect(numeric, refusal, next_step)
    return float(value)


class Number(NamedTuple):
    """A number to be found, and where the known slips lead instead."""

    name: str
    truth: float
    next_step: str
    slips: tuple[tuple[float, str], ...]  # a wrong number, and the idea behind it
    tolerance: float = 0.01


def judge_numbers(answers: Sequence[Any], numbers: Sequence[Number], praise: str) -> Verdict:
    """Judge several numbers, in their order."""
    for number, said in zip(numbers, answers, strict=True):
        refusal = f"{number.name} is {said!r}, not a number."
        answer = read_number(said, refusal, "Write digits: 1_000_000.")
        if idea := _idea_behind(answer, number):
            shown = f"{answer:,.0f}" if abs(answer) >= 1000 else f"{answer:.4g}"
            return wrong(f"{number.name} = {shown}: {idea}", number.next_step)
    return right(praise)


def _idea_behind(answer: float, number: Number) -> str | None:
    def close(other: float) -> bool:
        return isclose(answer, other, rel_tol=number.tolerance)

    if close(number.truth):
        return None
    ideas = (idea for slip, idea in number.slips if close(slip))
    return next(ideas, "That is not what the figures say.")
