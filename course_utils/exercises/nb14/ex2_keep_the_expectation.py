"""Exercise 14.2: which changes of the weights leave the expected loss unchanged."""

from collections.abc import Mapping

from course_utils.exercises.judging import expect_known, judge_labels, read_labels, words_beside
from course_utils.teaching.exercise import Verdict, exercise

_WORDS = words_beside(__file__)  # label -> letter of the change -> why
WHY = {letter: why for changes in _WORDS.values() for letter, why in changes.items()}


@exercise("14.2", title="Keep the expectation", seconds=30)
def keep_the_expectation(answers: Mapping[str, str]) -> Verdict:
    """Compare the label of each change with the true one."""
    said = {key: one.lower() for key, one in read_labels(answers, sorted(WHY), "label").items()}
    expect_known(said.values(), _WORDS, "labels", 'Write "same" or "changed" for each letter.')
    return judge_labels(
        said,
        {letter: label for label, changes in _WORDS.items() for letter in changes},
        lambda letter: (
            f"Change {letter} is not {said[letter]!r}. {WHY[letter]}",
            "Multiply the probability of an event by its new weight, and compare the product with "
            "the old weight.",
        ),
        "An event counts as often as it is drawn, times its weight. Only this product matters, and "
        "the divisor must not depend on the batch.",
    )
