"""Exercise 03.3: the flaws of a benchmark."""

import re
from collections.abc import Iterable, Mapping

from course_utils.exercises.judging import expect_known, judge_labels, words_beside
from course_utils.teaching.exercise import Verdict, exercise, todo

_WORDS = words_beside(__file__)
FLAWS, SOUND = _WORDS["flaws"], _WORDS["sound"]  # statement -> why it is a flaw, or is not


@exercise("03.3", title="List the flaws of a benchmark", seconds=30)
def list_the_flaws(answer: Iterable[str] | str) -> Verdict:
    """Compare the letters in the answer with those of the true flaws."""
    if isinstance(answer, Mapping):  # letter -> whether it is a flaw
        answer = [letter for letter, is_one in answer.items() if is_one]
    text = "".join(map(str, answer)) if isinstance(answer, Iterable) else str(answer)
    letters = set(re.sub(r"\band\b|[\W_]", "", text.lower()))
    if not letters - set("none"):
        return todo("No flaw is named yet.")
    expect_known(
        sorted(letters),
        {**FLAWS, **SOUND},
        "statements",
        'Write the letters of the flaws, such as {"a", "h"}.',
    )
    is_flaw = {letter: letter in FLAWS for letter in (*SOUND, *FLAWS)}
    said = {letter: letter in letters for letter in is_flaw}
    hits = sum(said[letter] == is_flaw[letter] for letter in is_flaw)
    score = f"You judged {hits} of {len(is_flaw)} statements right."

    def objection(letter: str) -> tuple[str, str]:
        if letter in SOUND:
            return (
                f"{score} One that you call a flaw is not a flaw. {SOUND[letter]}",
                "Ask of each statement: is it true, and is the comparison unfair because of it?",
            )
        return f"{score} You left out a flaw. {FLAWS[letter]}", "Find the statement about this."

    return judge_labels(
        said,
        is_flaw,
        objection,
        "Duplicates, a warm cache, the start of the workers, a single run in a fixed order: each "
        "of them alone can fake a speed-up.",
    )
