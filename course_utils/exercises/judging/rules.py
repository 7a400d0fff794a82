"""Judge rules and numbers: right, or wrong just as somebody with a known misconception is wrong."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf, isclose
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from course_utils.exercises.judging.compare import Show, how_to_run
from course_utils.teaching.exercise import Verdict, expect, refuse, right, wrong

Case = TypeVar("Case")
Answer = TypeVar("Answer")
# from a misconception to the next step, and the rules of those who have it
Slips = Mapping[str, tuple[str, *tuple[Callable[[Case], Answer], ...]]]


class Kind(NamedTuple, Generic[Case, Answer]):
    """What answers are: how to read one, refusing what is none, and when two are as good."""

    read: Callable[[Case, Any], Answer]
    same: Callable[[Answer, Answer], bool]


def judge_rule(
    rule: Callable[[Case], Any],
    *,
    cases: Sequence[Case],
    truth: Callable[[Case], Answer],
    slips: Slips[Case, Answer],
    answer: Kind[Case, Answer],
    praise: str,
    call: Show[Case] | None = None,
) -> Verdict:
    """Judge the learner's `rule` by what it answers in all the cases, shown and hidden.

    The first of the `slips` that agrees in every case is the misconception. If no slip agrees,
    the message shows the first case that differs, the answer and the true one, and the code that
    `call` returns for the case.
    """
    answers = [(case, answer.read(case, rule(case))) for case in cases]

    def agrees(other: Callable[[Case], Answer]) -> bool:
        return all(answer.same(said, other(case)) for case, said in answers)

    if agrees(truth):
        return right(praise)
    for misconception, (next_step, *rules) in slips.items():
        if any(map(agrees, rules)):
            return wrong(misconception, next_step)
    case, said = next(row for row in answers if not answer.same(row[1], truth(row[0])))
    shown = call(case) if call else case
    return wrong(
        f"For {shown}, your function returns {_short(said)}, but it must return "
        f"{_short(truth(case))}.",
        how_to_run(call, case),
    )


def _short(answer: object) -> str:
    if isinstance(answer, tuple):
        return ", ".join(map(_short, answer))
    return f"{answer:.3g}" if isinstance(answer, float) else str(answer)


def number(
    unit: str, *, within: float, least: float = -inf, advice: str = "Return one number."
) -> Kind[Any, float]:
    """Return the kind of answer that is a number of `unit`, right `within` so many.

    A slip that leads below the `least` number may have been cut off there.
    """

    def read(case: object, value: object) -> float:
        refusal = f"For {case} you return {value!r}, which is not a number of {unit}."
        return read_number(value, refusal, advice)

    def same(said: float, other: float) -> bool:
        return min(abs(said - other), abs(said - max(least, other))) <= within

    return Kind(read, same)


def draw(kind: Callable[..., Case], count: int, *, seed: int, **choices: Any) -> list[Case]:
    """Return as many cases, the same each time; each field is drawn from its `choices`."""
    rng = np.random.default_rng(seed)
    picked = {field: rng.choice(np.asarray(some), count) for field, some in choices.items()}
    rows = zip(*(column.tolist() for column in picked.values()), strict=True)
    return [kind(**dict(zip(picked, row, strict=True))) for row in rows]


def read_number(value: Any, refusal: str, next_step: str) -> float:
    """Return `value` as a float; refuse everything else."""
    if not isinstance(value, bool | str | bytes) and getattr(value, "ndim", 0) == 0:
        with suppress(TypeError, ValueError):
            return float(value)
    refuse(refusal, next_step)


def read_whole(value: Any, refusal: str, next_step: str) -> int:
    """Return `value` as an int; refuse everything else. 20_000 / 1_000 counts as whole."""
    read = read_number(value, refusal, next_step)
    expect(read % 1 == 0, refusal, next_step)
    return int(read)


class Number(NamedTuple):
    """A number to be found, and where the known slips lead instead."""

    name: str
    truth: float
    next_step: str
    slips: Mapping[float, str]  # from a wrong number to the idea behind it
    tolerance: float = 0.01


def judge_numbers(answers: Sequence[Any], numbers: Sequence[Number], praise: str) -> Verdict:
    """Judge several numbers, in their order."""
    for number, said in zip(numbers, answers, strict=True):
        refusal = f"{number.name} is {said!r}, not a number."
        answer = read_number(said, refusal, "Write digits, such as 1_500.")
        ideas = {number.truth: "", **number.slips}
        near = (
            idea
            for other, idea in ideas.items()
            if isclose(answer, other, rel_tol=number.tolerance)
        )
        if idea := next(near, _factor(answer / number.truth)):
            shown = f"{answer:,.0f}" if abs(answer) >= 1000 else f"{answer:.4g}"
            return wrong(f"{number.name} = {shown}: {idea}", number.next_step)
    return right(praise)


def _factor(factor: float) -> str:
    """Return the message for an unknown wrong number that is `factor` times the right one."""
    times = max(factor, 1 / factor) if factor > 0 else inf
    if 1.5 < times < 1e12 and isclose(times, round(times), rel_tol=0.01):
        size = "large" if factor > 1 else "small"
        return f"That is about {times:,.0f} times too {size}. Check the units."
    return "This does not follow from the figures in the text."
