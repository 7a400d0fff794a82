"""Exercise 09.3: the time of a step for three ways of pinning. A test measures the same loops."""

from collections.abc import Callable, Mapping

from course_utils.exercises.judging import Slips, draw, judge_rule, number
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.exercises.nb09.problem import CASES, PAGEABLE_GB_S, PINNED_GB_S, Case
from course_utils.teaching.exercise import Verdict, exercise

Time = Callable[[Case], float]


def _host(case: Case) -> float:
    """Return the ms of a copy by the host: from pageable memory, or to pin a batch."""
    return case.mb / PAGEABLE_GB_S


def _bus(case: Case) -> float:
    """Return the ms of the copy engine for a pinned batch."""
    return case.mb / PINNED_GB_S


_LOOPS: dict[str, Time] = {
    "nowhere": lambda c: _host(c) + c.step_ms,
    "in the loop": lambda c: _host(c) + c.step_ms,
    "in the loader": lambda c: max(_host(c), c.step_ms),
}


def predicted_ms(case: Case, loops: Mapping[str, Time] = _LOOPS) -> float:
    """Return the ms of a step by the formula: workers and loop run at the same time."""
    return max(case.load_ms, loops[case.pin](case))


def _if(pin: str, loop: Time) -> Time:
    """Return the time if the loop with this way of pinning had another formula."""
    return lambda case: predicted_ms(case, {**_LOOPS, pin: loop})


SLIPS: Slips[Case, float] = {
    "You use max(load, step, copy) for all three ways. The program itself copies pageable batches "
    "and pins in the loop, and launches the step only afterwards.": (
        "In the loader: max of all. Nowhere and in the loop: max(load, copy or pinning + step).",
        lambda c: max(c.load_ms, c.step_ms, _host(c)),
        lambda c: max(c.load_ms, c.step_ms, _host(c) if c.pin == "nowhere" else _bus(c)),
    ),
    "In the loop, you take pinning for free, or overlap it with the step. Pinning is a copy that "
    "the program itself makes before it launches the step.": (
        "In the loop: add mb / PAGEABLE_GB_S and the step.",
        _if("in the loop", lambda c: max(_bus(c), c.step_ms)),
        _if("in the loop", lambda c: max(_host(c), c.step_ms)),
    ),
    "You leave out the pinning in the loader. Its thread copies each batch at PAGEABLE_GB_S, and "
    "the loop waits if that takes longer than the step.": (
        "In the loader: max(load, pinning, step).",
        _if("in the loader", lambda c: max(_bus(c), c.step_ms)),
        _if("in the loader", lambda c: c.step_ms),
    ),
    "You forget the workers. A loop cannot be faster than they deliver.": (
        "Use max(load_ms, ...) in all three ways.",
        lambda c: _LOOPS[c.pin](c),
        lambda c: predicted_ms(c) if c.pin == "in the loader" else _LOOPS[c.pin](c),
    ),
}

HIDDEN = draw(
    Case,
    400,
    seed=10,
    mb=(0.5, 1, 2, 3, 6, 11, 19),
    step_ms=(0.05, 0.25, 0.5, 1, 2),
    load_ms=(0.05, 0.1, 0.5, 4),
    pin=list(_LOOPS),
)


@exercise("09.3", title="When pinning loses", seconds=30)
def when_pinning_loses(step_time_ms: Time) -> Verdict:
    """Check a function from a case to the ms of a step against the formula."""
    cases = [*CASES.values(), *HIDDEN]
    with process_unchanged():
        return judge_rule(
            step_time_ms,
            cases=cases,
            truth=predicted_ms,
            slips=SLIPS,
            answer=number("milliseconds", within=0.01),
            praise=f"{len(cases)} loops, each predicted to 0.01 ms. Pinning pays in the loader. In "
            "the loop it costs what it saves. With slow workers or small batches it does not "
            "matter.",
        )
