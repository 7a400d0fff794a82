"""Exercise 09.3: the time of a step for three ways to the device; a test measures the same."""

from collections.abc import Callable, Mapping

from course_exercises.judging import Slips, draw, judge_rule, number
from course_exercises.nb09.problem import CASES, PAGEABLE_GB_S, PINNED_GB_S, Case
from course_utils.teaching.exercise import Verdict, exercise

Time = Callable[[Case], float]


def _host(case: Case) -> float:
    """Return how long a copy by the host takes: from pageable memory, or to pin a batch."""
    return case.mb / PAGEABLE_GB_S


def _bus(case: Case) -> float:
    """Return how long the copy engine takes for a pinned batch."""
    return case.mb / PINNED_GB_S


_LOOPS: dict[str, Time] = {
    "nowhere": lambda c: _host(c) + c.step_ms,
    "in the loop": lambda c: _host(c) + c.step_ms,
    "in the loader": lambda c: max(_host(c), c.step_ms),
}


def predicted_ms(case: Case, loops: Mapping[str, Time] = _LOOPS) -> float:
    """Return how long a step takes by the formula: workers and loop run side by side."""
    return max(case.load_ms, loops[case.pin](case))


def _if(pin: str, loop: Time) -> Time:
    """Return the time under another idea of the loop where it pins there."""
    return lambda case: predicted_ms(case, {**_LOOPS, pin: loop})


SLIPS: Slips[Case, float] = {
    "You take max(load, step, copy) for all three. That holds for batches that somebody else has "
    "pinned; what the program itself copies or pins holds up the launch of the step.": (
        "In the loader: max of all. Nowhere and in the loop: max(load, copy or pinning + step).",
        lambda c: max(c.load_ms, c.step_ms, _host(c)),
        lambda c: max(c.load_ms, c.step_ms, _host(c) if c.pin == "nowhere" else _bus(c)),
    ),
    "You hide the copy from pageable memory behind the step. non_blocking=True changes nothing "
    "there: the program is held up by the copy, and launches the step only then.": (
        "Nowhere pinned: the copy and the step add up.",
        _if("nowhere", lambda c: max(_host(c), c.step_ms)),
    ),
    "You take pinning in the loop to cost nothing. It is a copy, which the program itself makes.": (
        "In the loop: mb / PAGEABLE_GB_S for the pinning, and then the step.",
        _if("in the loop", lambda c: max(_bus(c), c.step_ms)),
    ),
    "You hide the pinning in the loop behind the step. The program pins, and launches the step "
    "only then; what is hidden is the copy after it.": (
        "In the loop: pinning and step add up.",
        _if("in the loop", lambda c: max(_host(c), c.step_ms)),
    ),
    "In the loop you add the copy of the pinned batch. That one is hidden: it runs on its own "
    "stream beside the step before.": (
        "In the loop: pinning and step, no more.",
        _if("in the loop", lambda c: _host(c) + _bus(c) + c.step_ms),
    ),
    "You let the loader pin for nothing. Its thread copies each batch, at PAGEABLE_GB_S, and "
    "where that takes longer than the step, the loop waits for it.": (
        "In the loader there is one more stage beside the others: max(load, pin, step).",
        _if("in the loader", lambda c: max(_bus(c), c.step_ms)),
    ),
    "You forget the copies where the loader pins: a step can be shorter than they are.": (
        "In the loader: max(load, pin, step).",
        _if("in the loader", lambda c: c.step_ms),
    ),
    "You add copy and step where the loader pins. They run at the same time.": (
        "What runs at the same time takes as long as the longest of it.",
        _if("in the loader", lambda c: _bus(c) + c.step_ms),
        _if("in the loader", lambda c: _host(c) + c.step_ms),
    ),
    "You forget the workers: a loop is never faster than they deliver, however well it copies.": (
        "max(load_ms, ...) in all three ways to pin.",
        lambda c: _LOOPS[c.pin](c),
        lambda c: predicted_ms(c) if c.pin == "in the loader" else _LOOPS[c.pin](c),
    ),
    "You add the loading. The workers load while the loop does all the rest.": (
        "max(load_ms, ...): whichever takes longer.",
        lambda c: c.load_ms + _LOOPS[c.pin](c),
    ),
    "You copy from pageable memory at the speed of pinned memory.": (
        "Nowhere pinned: mb / PAGEABLE_GB_S.",
        _if("nowhere", lambda c: _bus(c) + c.step_ms),
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


@exercise("09.3", title="When pinning loses")
def when_pinning_loses(step_time_ms: Time) -> Verdict:
    """Judge a function from a case to the milliseconds of a step, which are those of the device."""
    cases = [*CASES.values(), *HIDDEN]
    return judge_rule(
        step_time_ms,
        cases=cases,
        truth=predicted_ms,
        slips=SLIPS,
        answer=number("milliseconds", within=0.01),
        praise=f"{len(cases)} loops, each predicted to the hundredth of a millisecond. Pinning "
        "pays in the loader. In the loop it costs what it saves, and where the workers are slow or "
        "the batch is small, it does not matter.",
        otherwise=lambda case, answer, ms: (
            f"For {case} you predict {answer:.2f} ms; the device takes {ms:.2f}.",
            "Ask of each part: who does it, and what goes on meanwhile? What one does after "
            "another adds up; of what goes on at the same time, the longest counts. MB / (GB/s) is "
            "ms.",
        ),
    )
