"""Exercise 02.4: what the time of an idle GPU costs."""

from course_exercises.judging import Number, judge_numbers
from course_utils.teaching.exercise import Verdict, exercise

A100_PER_MONTH, RACK_PER_DAY, RACK_GPUS = 3.0 * 24 * 365 / 12, 2_821.0, 72
RACK_PER_GPU_HOUR = RACK_PER_DAY / 24 / RACK_GPUS
BUSY, REACHABLE = 0.3, 0.8
SAVED = 1 - BUSY / REACHABLE

NUMBERS = (
    Number(
        "wasted_per_month",
        (1 - BUSY) * A100_PER_MONTH,
        "Multiply the price of an hour by 24 hours, by 30 days and by the idle share.",
        {
            12 * (1 - BUSY) * A100_PER_MONTH: "That is a year, 12 times too much: a whole month of "
            "this GPU costs only $2,160.",
            A100_PER_MONTH: "That is the whole bill; 30 % of it was useful.",
            BUSY * A100_PER_MONTH: "That is the price of the useful time, not of the idle time.",
        },
        tolerance=0.025,  # a month of 30 days, of 31, or a twelfth of a year
    ),
    Number(
        "recoverable_per_day",
        SAVED * RACK_PER_DAY,
        "The same work takes 0.3 / 0.8 of a day at 80 %. What is left of the day is recoverable.",
        {
            (1 - BUSY) * RACK_PER_DAY: "That is the waste against 100 %, which no training "
            "reaches. What can be recovered ends at 80 %.",
            (REACHABLE - BUSY) * RACK_PER_DAY: "You subtracted percentages: 80 % - 30 % are 50 "
            "points of the rack's time. The question is how much of it the same work no longer "
            "needs.",
            (1 - SAVED) * RACK_PER_DAY: "That is what the same work still costs at 80 %.",
            365 * SAVED * RACK_PER_DAY: "That is a year; the question is for one day.",
            365 * (1 - BUSY) * RACK_PER_DAY: "That is a year, and it counts the waste against "
            "100 %, which nobody reaches.",
        },
    ),
    Number(
        "per_useful_hour",
        RACK_PER_GPU_HOUR / BUSY,
        "Divide the price of a day by the useful GPU-hours in it: 72 times 24 times 0.3.",
        {
            RACK_PER_GPU_HOUR: "That is the price of any hour, useful or not.",
            RACK_PER_GPU_HOUR / REACHABLE: "That is the price when all is mended, at 80 %.",
            RACK_PER_GPU_HOUR * BUSY: "You multiplied, as if idling made the work cheaper.",
            RACK_PER_GPU_HOUR / (1 - BUSY): "You divided by the idle share.",
            RACK_PER_GPU_HOUR * RACK_GPUS / BUSY: "That is an hour of the whole rack, 72 GPUs.",
        },
    ),
)


@exercise("02.4", title="What idling costs")
def count_the_cost(*answers: float) -> Verdict:
    """Expect dollars wasted in a month, recoverable in a day, and paid for a useful hour."""
    return judge_numbers(
        answers,
        NUMBERS,
        "A month is not a year, what is recoverable is not all that is idle, and the honest price "
        "is that of a useful hour: rate divided by utilisation.",
    )
