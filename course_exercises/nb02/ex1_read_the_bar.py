"""Exercise 02.1: what a progress bar adds up to."""

from course_exercises.judging import Number, judge_numbers
from course_utils.teaching.exercise import Verdict, exercise

STEPS, BATCH, SECONDS_PER_STEP = 78_125, 128, 111.39
EPOCH_DAYS = STEPS * SECONDS_PER_STEP / 86_400
SMALL_RUN_S = 86_400 / (10 * 100_000)  # for one event: ten epochs of 100,000 events in a day
SLOWDOWN = SECONDS_PER_STEP / BATCH / SMALL_RUN_S

NUMBERS = (
    Number(
        "events_per_epoch",
        STEPS * BATCH,
        "The bar counts steps, and a step is a whole batch: multiply the two.",
        {
            1e6: "A million is what the plan says, not what the bar says.",
            STEPS: "Those are the steps, not the events.",
            STEPS / BATCH: "You divided the steps by the batch size.",
        },
    ),
    Number(
        "days_ten_epochs",
        10 * EPOCH_DAYS,
        "One epoch takes 100.72 days; take ten of them.",
        {
            EPOCH_DAYS: "The bar belongs to one epoch; the training has ten, as before.",
            10: "Ten days is the hope, not what the bar says.",
        },
        tolerance=0.015,  # 9 steps in 16:53 are a little slower than the bar says
    ),
    Number(
        "slowdown_per_event",
        SLOWDOWN,
        "Divide the seconds of a step by its 128 events, then compare with the small run.",
        {
            EPOCH_DAYS: "You compared days with days, but more events went by.",
            10 * EPOCH_DAYS: "You compared the whole runs. A factor of 100 in there is no "
            "slowdown: the file has 100 times the events.",
            SLOWDOWN / 10: "A factor of 1 says that an event takes as long as before. Whoever "
            "gives the small run one epoch finds that; in its day it did ten, and served a million "
            "events.",
            BATCH * SLOWDOWN: "You compared a step with an event of the small run; a step has 128.",
            1 / SLOWDOWN: "You divided the small run by the big one; turn the ratio round.",
        },
        tolerance=0.015,
    ),
)


@exercise("02.1", title="Read the progress bar")
def read_the_bar(*answers: float) -> Verdict:
    """Expect events per epoch, days for ten epochs, and the slowdown of one event."""
    return judge_numbers(
        answers,
        NUMBERS,
        "The file grew a hundredfold, not tenfold, and every event takes ten times as long. The "
        "first is a slip of the plan. The second is what this notebook is about.",
    )
