"""Exercise 03.2: time a step on an emulated device with its own clock.

The clock advances only while the device or the host works, so the result does not depend on the
machine.
"""

from collections.abc import Callable
from itertools import cycle
from typing import Any, Self

import torch

from course_utils.exercises.judging import read_number
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator
from course_utils.teaching.exercise import Verdict, exercise, right

TOLERANCE = 0.05
WARM_UP = 40  # factor by which the first step takes longer, on the host and on the device
UNEVEN = 0.7, 1.3  # factors of single steps, so two steps are not enough to find the mean
Case = tuple[float, float]  # milliseconds of the kernels of a step, and of launching them
CASES: tuple[Case, ...] = ((8, 2), (5, 2), (40, 9), (2, 6), (900, 3), (0.02, 0.05))


class _Bench:
    """A device and a step with their own clock, and a log of how they are used."""

    def __init__(self, kernel_ms: float, host_ms: float):
        self.kernel_ms, self.host_ms = kernel_ms, host_ms
        self.now_ns, self.log = 10**12, ""
        self.gpu = EmulatedAccelerator(PRESETS["RTX 3090"], clock=self)
        self.batch = self.gpu.upload(torch.zeros(1))
        self.factors = cycle(UNEVEN)
        self.log = ""  # r: the clock is read, s: a step is launched, w: the host waits

    def clock(self) -> float:
        self.log += "r"
        return self.now_ns / 1e9

    def step(self) -> Any:
        first = WARM_UP if "s" not in self.log else 1
        self.log += "s"
        self.now_ns += round(first * self.host_ms * 1e6)
        return self.gpu.step(self.batch, ms=first * next(self.factors) * self.kernel_ms)

    def __call__(self) -> int:  # by the device
        return self.now_ns

    def sleep_until(self, end_ns: int) -> None:  # the host waits for the device
        self.log += "w"
        self.now_ns = max(self.now_ns, end_ns)


class Measured(float):
    """The milliseconds that an answer returned, and how it used the device."""

    clocks: int
    launches: int
    waits: int  # between two launches
    warmed_up: bool
    waits_at_the_end: bool

    def __new__(cls, ms: float, log: str) -> Self:
        """Create the number, and count clock readings and launches in the log of a bench."""
        self = super().__new__(cls, ms)
        self.clocks, self.launches = log.count("r"), log.count("s")
        self.waits = log.replace("r", "").count("ws")
        before, last = log.partition("r")[0], log.rpartition("s")[2]
        self.warmed_up = "s" in before and before.endswith("w")
        self.waits_at_the_end = "w" in last.partition("r")[0]
        return self

    def __repr__(self) -> str:
        return f"{self:.3g} ms"


def _close(measured: float, truth: float) -> bool:
    return abs(measured / truth - 1) < TOLERANCE


def _if_wrong(when: Callable[[Measured, float], object]) -> Callable[[Any, Any, Any], object]:
    return lambda _, got, truth: not _close(got, truth) and when(got, truth)


SEEN = "For a step of {wanted:g} ms you return {got:.3g} ms. "
SLIPS = (
    Slip(
        _if_wrong(lambda got, _: got.clocks < 2 or got <= 0),
        f"{SEEN}The check has its own clock, and the first step takes {WARM_UP} times as long.",
        "Call step() many times between two readings of `clock()`, and subtract the two.",
    ),
    Slip(
        _if_wrong(lambda got, _: not got.waits_at_the_end),
        f"{SEEN}The clock is read before the device has finished, so you time how long Python "
        "takes to launch the work.",
        "Call `gpu.synchronize()` before you read the clock the second time.",
    ),
    Slip(
        _if_wrong(
            lambda got, truth: got > truth and got.waits > 2 and got.waits >= 0.2 * got.launches
        ),
        f"{SEEN}You wait {{got.waits}} times in {{got.launches}} steps. The host then cannot "
        "launch the next step while the device computes.",
        "Launch many steps and wait once, after the last one.",
    ),
    Slip(
        _if_wrong(lambda got, truth: got > truth and not got.warmed_up),
        f"{SEEN}The first step takes {WARM_UP} times as long, because it compiles and allocates. "
        "Part of it is in your measurement.",
        "Launch a few steps, and wait for them, before you read the clock the first time.",
    ),
)


@exercise("03.2", title="Time a step around an asynchronous device", seconds=30)
def time_a_step(ms_per_step: Callable[..., float]) -> Verdict:
    """Try the function on steps of hidden lengths."""

    def measure(case: Case) -> Measured:
        bench = _Bench(*case)
        returned = ms_per_step(bench.gpu, bench.step, clock=bench.clock)
        refusal = f"The function returned {returned!r:.60}, not a number."
        ms = read_number(returned, refusal, "Return the milliseconds of one step.")
        return Measured(ms, bench.log)

    compare(measure, max, CASES, *SLIPS, same=_close, show=_show)
    return right(
        "You warm up, wait, start the clock, launch many steps, wait once, and stop the clock. "
        "This is right for a step that the GPU limits and for one that the host limits."
    )


def _show(case: Case) -> str:
    return f"a step of {case[0]:g} ms on the device, which the host launches in {case[1]:g} ms"
