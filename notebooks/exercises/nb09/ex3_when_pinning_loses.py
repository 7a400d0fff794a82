"""Check of notebook 09: the time of a step for three ways to the device, measured on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from course_utils.hardware.gpu import PRESETS, Accelerator, HostClock, timed_accelerator
from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong

PRESET = PRESETS["RTX 3090"]
PAGEABLE_GB_S, PINNED_GB_S = PRESET.pageable_gb_s, PRESET.pinned_gb_s
STEPS = 4
HIDDEN = 6  # cases that nobody has seen


@dataclass(frozen=True)
class Case:
    """A loop that prefetches one batch ahead, on a stream of its own, and reads each loss."""

    mb: float  # a batch
    step_ms: float  # the GPU computes
    load_ms: float  # the workers deliver a batch each `load_ms`
    pin: str  # "nowhere", "in the loop" or "in the loader", whose thread pins beside the loop


CASES = {
    "as it comes": Case(24, 3, 1, "nowhere"),
    "one more line": Case(24, 1.5, 1, "in the loop"),
    "pin_memory=True": Case(24, 3, 1, "in the loader"),
    "small batch": Case(0.1, 3, 1, "nowhere"),
    "slow workers": Case(24, 3, 9, "in the loader"),
    "short step": Case(24, 0.5, 0.5, "in the loader"),
}

Answer = Callable[[Case], float]


@cache
def measure_ms(case: Case) -> float:
    """Return how long a step takes in the long run, on an emulated device that nobody waits for."""
    gpu, clock = timed_accelerator(PRESET.name, step_ms=case.step_ms, emulate=True)
    copies, ends, before = gpu.Stream(), list[int](), None
    for batch in _deliver(case, gpu, clock):
        pinned = gpu.pin(batch) if case.pin == "in the loop" else batch
        with gpu.stream(copies):
            staged = gpu.upload(pinned, non_blocking=True), copies.record_event()
        if before is not None:
            gpu.current_stream().wait_event(before[1])
            gpu.step(before[0]).item()
            ends.append(clock())
        before = staged
    return (ends[-1] - ends[0]) / (len(ends) - 1) / 1e6


def _deliver(case: Case, gpu: Accelerator, clock: HostClock) -> Iterator[torch.Tensor]:
    """Hand over batches when workers, and the thread that pins, would have them ready."""
    batch = torch.zeros(round(case.mb * 1e6), dtype=torch.uint8)
    (pinned,) = gpu.pinned([batch])
    ready_ms = 0.0
    for number in range(STEPS):
        ready_ms = max(ready_ms, (number + 1) * case.load_ms)
        if case.pin == "in the loader":
            ready_ms += _pin(case)
        clock.sleep_until(round(ready_ms * 1e6))
        yield pinned if case.pin == "in the loader" else batch


def _pageable(case: Case) -> float:
    return case.mb / PAGEABLE_GB_S


_pin = _pageable  # to pin is to copy, at the speed of the host's memory


def _pinned(case: Case) -> float:
    return case.mb / PINNED_GB_S


_TIMES: dict[str, Answer] = {
    "nowhere": lambda c: max(c.load_ms, _pageable(c) + c.step_ms),
    "in the loop": lambda c: max(c.load_ms, _pin(c) + c.step_ms),
    "in the loader": lambda c: max(c.load_ms, _pin(c), c.step_ms),
}


@dataclass(frozen=True)
class _Slip:
    """What one takes for true, and the times that follow."""

    misconception: str
    next_step: str
    times: Mapping[str, Answer]

    def ms(self, case: Case) -> float:
        return {**_TIMES, **self.times}[case.pin](case)


_SLIPS = (
    _Slip(
        "You hide the copy from pageable memory behind the step. non_blocking=True changes nothing "
        "there: the program is held up by the copy, and launches the step only then.",
        "Nowhere pinned: the copy and the step add up.",
        {"nowhere": lambda c: max(c.load_ms, _pageable(c), c.step_ms)},
    ),
    _Slip(
        "You take pinning in the loop to cost nothing. It is a copy, which the program itself "
        "makes.",
        "In the loop: mb / PAGEABLE_GB_S for the pinning, and then the step.",
        {"in the loop": lambda c: max(c.load_ms, _pinned(c), c.step_ms)},
    ),
    _Slip(
        "You hide the pinning in the loop behind the step. The program pins, and launches the step "
        "only then; what is hidden is the copy after it.",
        "In the loop: pinning and step add up.",
        {"in the loop": lambda c: max(c.load_ms, _pin(c), c.step_ms)},
    ),
    _Slip(
        "In the loop you add the copy of the pinned batch. That one is hidden: it runs on its own "
        "stream beside the step before.",
        "In the loop: pinning and step, no more.",
        {"in the loop": lambda c: max(c.load_ms, _pin(c) + _pinned(c) + c.step_ms)},
    ),
    _Slip(
        "You let the loader pin for nothing. Its thread copies each batch, at PAGEABLE_GB_S, and "
        "where that takes longer than the step, the loop waits for it.",
        "In the loader there is one more stage beside the others: max(load, pin, step).",
        {"in the loader": lambda c: max(c.load_ms, _pinned(c), c.step_ms)},
    ),
    _Slip(
        "You forget the copies where the loader pins: a step can be shorter than they are.",
        "In the loader: max(load, pin, step).",
        {"in the loader": lambda c: max(c.load_ms, c.step_ms)},
    ),
    _Slip(
        "You add copy and step where the loader pins. They run at the same time.",
        "What runs at the same time takes as long as the longest of it.",
        {"in the loader": lambda c: max(c.load_ms, _pinned(c) + c.step_ms)},
    ),
    _Slip(
        "You forget the workers: a loop is never faster than they deliver, however well it copies.",
        "max(load_ms, ...) in all three cases.",
        {
            "nowhere": lambda c: _pageable(c) + c.step_ms,
            "in the loop": lambda c: _pin(c) + c.step_ms,
            "in the loader": lambda c: max(_pin(c), c.step_ms),
        },
    ),
    _Slip(
        "You add the loading. The workers load while the loop does all the rest.",
        "max(load_ms, ...): whichever takes longer.",
        {
            "nowhere": lambda c: c.load_ms + _pageable(c) + c.step_ms,
            "in the loop": lambda c: c.load_ms + _pin(c) + c.step_ms,
            "in the loader": lambda c: c.load_ms + max(_pin(c), c.step_ms),
        },
    ),
    _Slip(
        "You copy from pageable memory at the speed of pinned memory.",
        "Nowhere pinned: mb / PAGEABLE_GB_S.",
        {"nowhere": lambda c: max(c.load_ms, _pinned(c) + c.step_ms)},
    ),
)


@exercise("09.3", title="When pinning loses")
def when_pinning_loses(predicted_ms: Answer) -> Verdict:
    """Judge a function from a case to the milliseconds of a step, against the emulated device."""
    cases = [*CASES.values(), *_hidden_cases()]
    answers = [_ask(predicted_ms, case) for case in cases]
    measured = [measure_ms(case) for case in cases]
    if _all_equal(answers, measured):
        return right(
            f"{len(cases)} loops, each predicted to the hundredth of a millisecond. Pinning pays "
            "in the loader. In the loop it costs what it saves, and where the workers are slow or "
            "the batch is small, it does not matter."
        )
    for slip in _SLIPS:
        if _all_equal(answers, [slip.ms(case) for case in cases]):
            return wrong(slip.misconception, slip.next_step)
    case, answer, ms = next(
        one for one in zip(cases, answers, measured, strict=True) if not _equal(*one[1:])
    )
    return wrong(
        f"For {case} you predict {answer:.2f} ms; the device takes {ms:.2f}.",
        "Ask of each part: who does it, and what goes on meanwhile? What one does after another "
        "adds up; of what goes on at the same time, the longest counts. MB / (GB/s) is ms.",
    )


def _hidden_cases() -> Iterator[Case]:
    rng = np.random.default_rng()
    for number in range(HIDDEN):
        yield Case(
            mb=float(rng.integers(1, 20)),
            step_ms=float(rng.choice([0.25, 0.5, 1, 2])),
            load_ms=float(rng.choice([0.1, 0.5, 4])),
            pin=list(_TIMES)[number % len(_TIMES)],
        )


def _ask(predicted_ms: Answer, case: Case) -> float:
    answer = predicted_ms(case)
    expect(
        isinstance(answer, int | float | np.number) and not isinstance(answer, bool),
        f"For {case} you return {answer!r}, which is no number of milliseconds.",
        "Return one number.",
    )
    return float(answer)


def _all_equal(some: list[float], others: list[float]) -> bool:
    return all(map(_equal, some, others))


def _equal(one: float, other: float) -> bool:
    return abs(one - other) < 0.01
