"""Judge the exercises of notebook 02: what the time and the money of an idle GPU add up to."""

from __future__ import annotations

from dataclasses import dataclass
from math import isclose

from course_utils.teaching.exercise import Verdict, exercise, expect, right


@dataclass(frozen=True)
class Number:
    """A number to be found, and where the known slips lead instead."""

    name: str
    truth: float
    how: str  # the next step for whoever is wrong
    slips: tuple[tuple[float, str], ...]  # a wrong number, and the idea behind it
    tolerance: float = 0.01

    def judge(self, answer: float) -> None:
        """End the check as wrong unless `answer` is right."""
        is_number = isinstance(answer, int | float) and not isinstance(answer, bool)
        expect(is_number, f"{self.name} is {answer!r}, not a number.", "Write digits: 1_000_000.")
        if isclose(answer, self.truth, rel_tol=self.tolerance):
            return
        close = [idea for slip, idea in self.slips if isclose(answer, slip, rel_tol=self.tolerance)]
        idea = close[0] if close else "That is not what the figures say."
        shown = f"{answer:,.0f}" if abs(answer) >= 1000 else f"{answer:.4g}"
        expect(False, f"{self.name} = {shown}: {idea}", self.how)


STEPS, BATCH, SECONDS_PER_STEP = 78_125, 128, 111.39
EPOCH_DAYS = STEPS * SECONDS_PER_STEP / 86_400
SMALL_RUN_S = 86_400 / (10 * 100_000)  # for one event: ten epochs of 100,000 events in a day
SLOWDOWN = SECONDS_PER_STEP / BATCH / SMALL_RUN_S

PROGRESS_BAR = (
    Number(
        "events_per_epoch",
        STEPS * BATCH,
        "The bar counts steps, and a step is a whole batch: multiply the two.",
        (
            (1e6, "A million is what the plan says, not what the bar says."),
            (STEPS, "Those are the steps, not the events."),
            (STEPS / BATCH, "You divided the steps by the batch size."),
        ),
    ),
    Number(
        "days_ten_epochs",
        10 * EPOCH_DAYS,
        "One epoch takes 100.72 days; take ten of them.",
        (
            (EPOCH_DAYS, "The bar belongs to one epoch; the training has ten, as before."),
            (10, "Ten days is the hope, not what the bar says."),
        ),
    ),
    Number(
        "slowdown_per_event",
        SLOWDOWN,
        "Divide the seconds of a step by its 128 events, then compare with the small run.",
        (
            (EPOCH_DAYS, "You compared days with days, but more events went by."),
            (
                10 * EPOCH_DAYS,
                "You compared the whole runs. A factor of 100 in there is no slowdown: the file "
                "has 100 times the events.",
            ),
            (
                SLOWDOWN / 10,
                "You gave the small run one epoch. In its day it did ten, so it served a million "
                "events.",
            ),
            (1 / SLOWDOWN, "You divided the small run by the big one; turn the ratio round."),
        ),
    ),
)


@exercise("02.1", title="Read the progress bar")
def check_progress_bar(*answers: float) -> Verdict:
    """Expect events per epoch, days for ten epochs, and the slowdown of one event."""
    _judge(PROGRESS_BAR, answers)
    return right(
        "The file grew a hundredfold, not tenfold, and every event takes ten times as long. The "
        "first is a slip of the plan. The second is what this notebook is about."
    )


A100_PER_MONTH, RACK_PER_DAY, RACK_GPUS = 3.0 * 24 * 365 / 12, 2_821.0, 72
RACK_PER_GPU_HOUR = RACK_PER_DAY / 24 / RACK_GPUS
BUSY, REACHABLE = 0.3, 0.8
SAVED = 1 - BUSY / REACHABLE

MONEY = (
    Number(
        "wasted_per_month",
        (1 - BUSY) * A100_PER_MONTH,
        "Multiply the price of an hour by 24 hours, by 30 days and by the idle share.",
        (
            (
                12 * (1 - BUSY) * A100_PER_MONTH,
                "That is a year, 12 times too much: a whole month of this GPU costs only $2,160.",
            ),
            (A100_PER_MONTH, "That is the whole bill; 30 % of it was useful."),
            (BUSY * A100_PER_MONTH, "That is the price of the useful time, not of the idle time."),
        ),
        tolerance=0.025,  # a month of 30 days, of 31, or a twelfth of a year
    ),
    Number(
        "recoverable_per_day",
        SAVED * RACK_PER_DAY,
        "The same work takes 0.3 / 0.8 of a day at 80 %. What is left of the day is recoverable.",
        (
            (
                (1 - BUSY) * RACK_PER_DAY,
                "That is the waste against 100 %, which no training reaches. What can be "
                "recovered ends at 80 %.",
            ),
            (
                (REACHABLE - BUSY) * RACK_PER_DAY,
                "You subtracted percentages: 80 % - 30 % are 50 points of the rack's time. The "
                "question is how much of it the same work no longer needs.",
            ),
            ((1 - SAVED) * RACK_PER_DAY, "That is what the same work still costs at 80 %."),
            (365 * SAVED * RACK_PER_DAY, "That is a year; the question is for one day."),
            (
                365 * (1 - BUSY) * RACK_PER_DAY,
                "That is a year, and it counts the waste against 100 %, which nobody reaches.",
            ),
        ),
    ),
    Number(
        "per_useful_hour",
        RACK_PER_GPU_HOUR / BUSY,
        "Divide the price of a day by the useful GPU-hours in it: 72 times 24 times 0.3.",
        (
            (RACK_PER_GPU_HOUR, "That is the price of any hour, useful or not."),
            (RACK_PER_GPU_HOUR / REACHABLE, "That is the price when all is mended, at 80 %."),
            (RACK_PER_GPU_HOUR * BUSY, "You multiplied, as if idling made the work cheaper."),
            (RACK_PER_GPU_HOUR / (1 - BUSY), "You divided by the idle share."),
            (RACK_PER_GPU_HOUR * RACK_GPUS / BUSY, "That is an hour of the whole rack, 72 GPUs."),
        ),
    ),
)


@exercise("02.4", title="What idling costs")
def check_money(*answers: float) -> Verdict:
    """Expect dollars wasted in a month, recoverable in a day, and paid for a useful hour."""
    _judge(MONEY, answers)
    return right(
        "A month is not a year, what is recoverable is not all that is idle, and the honest price "
        "is that of a useful hour: rate divided by utilisation."
    )


def _judge(numbers: tuple[Number, ...], answers: tuple[float, ...]) -> None:
    for number, answer in zip(numbers, answers, strict=True):
        number.judge(answer)
