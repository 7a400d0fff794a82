"""Exercise 02.4: calculate what the time of an idle GPU costs."""

from course_utils.exercises.judging import Number, judge_numbers
from course_utils.teaching.exercise import Verdict, exercise

A100_PER_MONTH, RACK_PER_DAY, RACK_GPUS = 3.0 * 24 * 30, 2_821.0, 72
RACK_PER_GPU_HOUR = RACK_PER_DAY / 24 / RACK_GPUS
BUSY, REACHABLE = 0.3, 0.8
SAVED = 1 - BUSY / REACHABLE
WITHIN = 0.02  # a month may also be a twelfth of a year

NUMBERS = (
    Number(
        "wasted_per_month",
        (1 - BUSY) * A100_PER_MONTH,
        "Multiply the price of an hour by 24 hours, by 30 days and by the idle share.",
        {
            12 * (1 - BUSY) * A100_PER_MONTH: "This is a year, so it is 12 times too much. A whole "
            "month of this GPU costs only $2,160.",
            A100_PER_MONTH: "This is the complete bill, but 30 % of the time was useful.",
            BUSY * A100_PER_MONTH: "This is the price of the useful time, not of the idle time.",
        },
        WITHIN,
    ),
    Number(
        "recoverable_per_day",
        SAVED * RACK_PER_DAY,
        "At 80 %, the same work takes 0.3 / 0.8 of a day. The rest of the day is saved.",
        {
            (1 - BUSY) * RACK_PER_DAY: "This is the waste compared with 100 %, which no training "
            "reaches. You can recover only the part up to 80 %.",
            (REACHABLE - BUSY) * RACK_PER_DAY: "You subtracted percentages. The same work at 80 % "
            "takes 0.3 / 0.8 of the time, so you save more than half of it.",
            (1 - SAVED) * RACK_PER_DAY: "This is what the same work still costs at 80 %.",
        },
        WITHIN,
    ),
    Number(
        "per_useful_hour",
        RACK_PER_GPU_HOUR / BUSY,
        "Divide the price of a day by the useful GPU-hours in it: 72 times 24 times 0.3.",
        {
            RACK_PER_GPU_HOUR: "This is the price of any hour, useful or not.",
            RACK_PER_GPU_HOUR / REACHABLE: "This is the price at 80 %, after the fix.",
        },
        WITHIN,
    ),
)


@exercise("02.4", title="What idling costs", seconds=30)
def count_the_cost(*answers: float) -> Verdict:
    """Check dollars wasted in a month, saved in a day, and paid for a useful hour."""
    return judge_numbers(
        answers,
        NUMBERS,
        "A month is not a year, and you cannot recover all idle time. The honest price of a GPU is "
        "the price of a useful hour: rate divided by utilization.",
    )
