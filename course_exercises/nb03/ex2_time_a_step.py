"""Exercise 03.2: time a step, on an emulated device whose time only passes when it is used.

The clock is the check's own, so the answer is the same on every machine, however busy.
"""

from collections.abc import Callable
from typing import Any

import torch

from course_exercises.judging import read_number
from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator
from course_utils.teaching.exercise import Verdict, exercise, expect, refuse, right
from keepfed.formatting import plural

TOLERANCE = 0.12
WARM_UP = 40  # the first step takes so many times as long, on the host and on the device
# What the kernels of a step take on the device, and what launching them takes on the host, in ms.
CASES = ((8, 2), (5, 2), (40, 9), (2, 6))  # the last one is bound by the host


class _Bench:
    """A device and a step under a clock of their own; notes in which order they are used."""

    def __init__(self, kernel_ms: float, host_ms: float):
        self.kernel_ms, self.host_ms = kernel_ms, host_ms
        # in a long run, host and device work at the same time
        self.truth_ms = max(kernel_ms, host_ms)
        self.now_ns, self.log = 10**12, ""
        self.gpu = EmulatedAccelerator(PRESETS["RTX 3090"], clock=self)
        self.batch = self.gpu.upload(torch.zeros(1))
        self.log = ""  # r: the clock is read, s: a step is launched, w: the host waits

    def clock(self) -> float:
        self.log += "r"
        return self.now_ns / 1e9

    def step(self) -> Any:
        factor = 1 if "s" in self.log else WARM_UP
        self.log += "s"
        self.now_ns += round(factor * self.host_ms * 1e6)
        return self.gpu.step(self.batch, ms=factor * self.kernel_ms)

    def __call__(self) -> int:  # by the device
        return self.now_ns

    def sleep_until(self, end_ns: int) -> None:  # by the host that waits for the device
        self.log += "w"
        self.now_ns = max(self.now_ns, end_ns)


@exercise("03.2", title="Time a step around an asynchronous device", seconds=20)
def time_a_step(ms_per_step: Callable[..., float]) -> Verdict:
    """Try the function on steps of hidden lengths."""
    for kernel_ms, host_ms in CASES:
        bench = _Bench(kernel_ms, host_ms)
        _judge(ms_per_step(bench.gpu, bench.step, clock=bench.clock), bench)
    return right(
        "Warm up, wait, start the clock, launch many, wait once, stop the clock: right for a step "
        "that the GPU limits and for one that the host limits."
    )


def _judge(returned: object, bench: _Bench) -> None:
    log, truth, launches = bench.log, bench.truth_ms, bench.log.count("s")
    refusal = f"The function returned {returned!r}, not a number."
    found = read_number(returned, refusal, "Return the milliseconds of one step.")
    expect(
        launches,
        "The function never calls step().",
        "Call step() many times between two readings.",
    )
    if _close(found, truth):
        return
    seen = f"A step of {truth:g} ms is {found:.3g} ms for you"
    expect(
        "r" in log or found > truth,
        f"{seen}. The check has a clock of its own, and your function does not read it.",
        "Call `clock()` where you would call `time.perf_counter()`.",
    )
    per_second = found and 1000 / found
    units = {"seconds": 1000 * found, "microseconds": found / 1000, "steps a second": per_second}
    for name, ms in units.items():
        expect(
            not _close(ms, truth),
            f"A step of {truth:g} ms is {found:.3g} for you: those are {name}.",
            "Return the milliseconds of one step.",
        )
    expect(
        found > 0 and log.count("r") != 1,
        f"{seen}. That is the difference of two clocks, or something is subtracted that took "
        f"longer than the rest, as the first step does with its {WARM_UP}-fold time.",
        "Take both readings from `clock()`, and both after a warm-up.",
    )
    too_slow = f", and the first step takes {WARM_UP} times as long as others" * (found > truth)
    expect(
        "w" in log,
        f"{seen}. Nothing in your function waits for the device, so you timed how long it takes to "
        f"hand over the work{too_slow}.",
        "Call `gpu.synchronize()` before you read the clock the second time.",
    )
    expect(
        launches < 7 or found < 0.7 * (launches - 5) * truth,
        f"{seen}: that is the time of all the steps together.",
        "Divide by the number of steps between the two readings of the clock.",
    )
    waits = log.replace("r", "").count("ws")  # after which another step is launched
    expect(
        waits < max(3, 0.3 * launches) or found < truth,
        f"{seen}. You wait for the device {waits} times in {launches} steps; then the host cannot "
        "launch the next step while the device computes, and you time a loop that nobody runs.",
        "Launch many steps and wait once, after the last one.",
    )
    before, last = log.partition("r")[0], log.rpartition("s")[2]
    expect(
        "w" in last.partition("r")[0] or found > truth,
        f"{seen}. The clock was stopped before the device had finished.",
        "Call `gpu.synchronize()` before you read the clock the second time.",
    )
    expect(
        "s" not in before or before.endswith("w"),
        f"{seen}. Your warm-up was launched, but the device was still busy with it when you "
        "started the clock.",
        "Wait for the device once more, right before you read the clock the first time.",
    )
    expect(
        found < truth or "s" in before,
        f"{seen}. The first step is in it, which takes {WARM_UP} times as long: it compiles, "
        "allocates, and tries out kernels.",
        "Launch a few steps and wait for them before you start the clock.",
    )
    expect(
        found > truth,
        f"{seen}. You divide by more steps than you timed.",
        "Count only the steps between the two readings of the clock.",
    )
    refuse(
        f"{seen}; you launched {plural(launches, 'step')} in all. With few steps the time of "
        "launching the first one weighs much; with many, more than steps is timed, or you divide "
        "by another number than theirs.",
        "Time at least 20 steps with one wait behind them, and divide by their number.",
    )


def _close(found: float, truth: float) -> bool:
    return abs(found / truth - 1) < TOLERANCE
