"""Exercise 12.1: whether a loader limits a training that somebody plans."""

from course_utils.exercises.judging import Number, judge_numbers
from course_utils.teaching.exercise import Verdict, exercise

BATCH, STEPS_PER_SECOND, TOKENS = 1_000_000, 0.5, 100e9
NEED = BATCH * STEPS_PER_SECOND
TOKEN = 4  # bytes; two bytes hold 65,536 tokens, but this vocabulary has 128,256
DAYS = TOKENS / NEED / 86_400

NUMBERS = (
    Number(
        "tokens_per_second",
        NEED,
        "Multiply the tokens of a step by the steps per second.",
        {
            BATCH: "These are the tokens of a step, but a step takes two seconds.",
        },
    ),
    Number(
        "mb_per_second",
        TOKEN * NEED / 1e6,
        "Choose the smallest integer type for 128,256 tokens, and count its bytes.",
        {
            2 * NEED / 1e6: "This is 2 bytes per token, or one batch. uint16 ends at 65,535, so "
            "half of this vocabulary would wrap around.",
        },
    ),
    Number(
        "days_with_500k",
        DAYS,
        "The slower of the two decides: the GPUs, or the loader. Compare them.",
        {
            2 * DAYS: "Many would say this. But the GPUs take 500,000 tokens/s anyway, so they do "
            "not wait for the loader.",
        },
    ),
    Number(
        "tripling_cap",
        NEED / 3,
        "The days triple if the loader gives a third of what the GPUs take.",
        {NEED: "The GPUs take exactly this, so it costs nothing."},
    ),
)


@exercise("12.1", title="The throughput card")
def fill_the_card(*answers: float) -> Verdict:
    """Expect tokens/s and MB/s of a training, its days with a cap, and the cap that triples it."""
    return judge_numbers(
        answers,
        NUMBERS,
        "A limit of 500,000 tokens/s costs nothing. Hardly any storage has too little bandwidth "
        "for 2 MB/s, but a loader that tokenizes, or requests each window, may be too slow.",
    )
