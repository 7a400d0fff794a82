"""Exercise 12.1: whether a loader limits the training that lecture notes speak of."""

from course_exercises.judging import Number, judge_numbers
from course_utils.teaching.exercise import Verdict, exercise

BATCH, STEPS_PER_SECOND, TOKENS = 1_000_000, 0.5, 100e9
NEED = BATCH * STEPS_PER_SECOND
DAY = 86_400
DAYS = TOKENS / NEED / DAY

NUMBERS = (
    Number(
        "tokens_per_second",
        NEED,
        "Multiply the tokens of a step by the steps in a second.",
        {
            BATCH: "Those are the tokens of a step, and a step takes two seconds.",
            BATCH / STEPS_PER_SECOND: "You divided by the steps in a second. A step takes two "
            "seconds, so in one second it is half of its tokens.",
        },
    ),
    Number(
        "mb_per_second",
        2 * NEED / 1e6,
        "A token takes 2 bytes on the disk.",
        {
            2 * NEED: "Those are bytes; a MB has a million of them.",
            2 * NEED / 2**20: "That is MiB, of 1,048,576 bytes; a MB has a million.",
            NEED / 1e6: "That is one byte for a token, and one byte can tell 256 of them apart.",
            4
            * NEED
            / 1e6: "That is 4 bytes for a token, and as uint16 it has 2; or it is what a step "
            "reads, and a step takes two seconds.",
            16 * NEED / 1e6: "Those are bits; a byte has 8 of them.",
            8 * NEED / 1e6: "That is int64, as the model gets it. On the disk a token has 2 bytes.",
        },
    ),
    Number(
        "days_with_500k",
        DAYS,
        "The training takes what is slower: the GPUs, or the loader. Compare them.",
        {
            2 * DAYS: "That is what the notes say. But the cap is what the training takes anyway, "
            "so nobody waits.",
            DAYS * DAY: "Those are seconds; a day has 86,400 of them.",
            DAYS * 24: "Those are hours.",
            DAYS / 2: "That is a step a second. A step takes two, and no loader makes the GPUs "
            "faster than they are.",
        },
    ),
    Number(
        "doubling_cap",
        NEED / 2,
        "The days double where the loader gives half of what the training takes.",
        {
            NEED: "That is all that the training takes: this cap costs nothing.",
            2 * NEED: "That is twice what the training takes: the loader would wait for the GPUs.",
            NEED / 1e6: "Those are MB/s; the notes give their cap in tokens/s.",
        },
    ),
)


@exercise("12.1", title="The throughput card")
def fill_the_card(*answers: float) -> Verdict:
    """Expect tokens/s and MB/s of a training, its days with a cap, and the cap that doubles it."""
    return judge_numbers(
        answers,
        NUMBERS,
        "The notes are wrong by a factor of 2: a cap of 500,000 tokens/s costs nothing. No storage "
        "is too slow for 1 MB/s; only a loader that tokenises as it goes may be.",
    )
