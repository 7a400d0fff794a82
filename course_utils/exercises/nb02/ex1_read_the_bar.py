"""Exercise 02.1: read the numbers of a progress bar."""

from course_utils.exercises.judging import Number, judge_numbers
from course_utils.teaching.exercise import Verdict, exercise

STEPS, BATCH, SECONDS_PER_STEP = 78_125, 128, 111.39
EPOCH_DAYS = STEPS * SECONDS_PER_STEP / 86_400
SMALL_RUN_S = 86_400 / (10 * 100_000)  # for one event: ten epochs of 100,000 events in a day
SLOWDOWN = SECONDS_PER_STEP / BATCH / SMALL_RUN_S
WITHIN = 0.02  # 9 steps in 16:53 are 1 % slower than the bar says

NUMBERS = (
    Number(
        "events_per_epoch",
        STEPS * BATCH,
        "The bar counts steps, and each step is one batch. Multiply the two.",
        {
            1e6: "The plan was a million events, but the bar shows a different number.",
            STEPS: "This is the number of steps, not of events.",
        },
        WITHIN,
    ),
    Number(
        "days_ten_epochs",
        10 * EPOCH_DAYS,
        "One epoch takes 100.72 days. Multiply by ten.",
        {EPOCH_DAYS: "The bar shows one epoch, but the training has ten."},
        WITHIN,
    ),
    Number(
        "slowdown_per_event",
        SLOWDOWN,
        "Divide the seconds of a step by its 128 events, then by the seconds for an event in the "
        "small run.",
        {
            EPOCH_DAYS: "You compared days with days, but the number of events is different.",
            100
            * SLOWDOWN: "This is 100 times too much. Either you compared the complete runs, and "
            "the large file has 100 times the events, or you wrote percent.",
            SLOWDOWN / 10: "This is 10 times too little. In one day, the small run served a "
            "million events, because it had ten epochs.",
            BATCH * SLOWDOWN: "You compared a step with one event. A step has 128 events.",
            1 / SLOWDOWN: "You divided the small run by the large one. Invert the ratio.",
        },
        WITHIN,
    ),
)


@exercise("02.1", title="Read the progress bar", seconds=30)
def read_the_bar(*answers: float) -> Verdict:
    """Check events per epoch, days for ten epochs, and the slowdown of one event."""
    return judge_numbers(
        answers,
        NUMBERS,
        "The file has 100 times the events, not ten times, and each event takes ten times as long. "
        "The first is an error in the plan. The second is the topic of this notebook.",
    )
