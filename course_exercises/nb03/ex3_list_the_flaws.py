"""Exercise 03.3: the flaws of a benchmark."""

import re
from collections.abc import Iterable

from course_exercises.judging import expect_known, judge_labels, words_beside
from course_utils.teaching.exercise import Verdict, exercise

_WORDS = words_beside(__file__)
FLAWS, SOUND = _WORDS["flaws"], _WORDS["sound"]  # statement -> why it is one, why it is none


@exercise("03.3", title="List the flaws of a benchmark")
def list_the_flaws(answer: Iterable[str] | str) -> Verdict:
    """Compare the letters of the statements with those that are true."""
    text = "".join(map(str, answer)) if isinstance(answer, Iterable) else str(answer)
    letters = set(re.sub(r"\band\b|[\W_]", "", text.lower()))
    expect_known(
        sorted(letters),
        {**FLAWS, **SOUND},
        "statements",
        'Give the letters of those that are flaws: {"a", "h"}.',
    )
    is_flaw = {letter: letter in FLAWS for letter in (*SOUND, *FLAWS)}
    said = {letter: letter in letters for letter in is_flaw}
    hits = sum(said[letter] == is_flaw[letter] for letter in is_flaw)
    score = f"{hits} of {len(is_flaw)} statements are judged right."

    def objection(letter: str) -> tuple[str, str]:
        if letter in SOUND:
            return (
                f"{score} One that you call a flaw is none: {SOUND[letter]}",
                "Ask of each statement: would the number change if this were mended?",
            )
        return f"{score} You left out a flaw. {FLAWS[letter]}", "Find the statement that says so."

    return judge_labels(
        said,
        is_flaw,
        objection,
        "Duplicates, a warm cache, the start of the workers, a single run in a fixed order: any "
        "one of them is enough to find a speed-up that is not there.",
    )
