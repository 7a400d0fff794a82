"""Exercise 09.1: ten symptoms of a prefetcher, and their causes."""

from course_utils.exercises.judging import expect_known, judge_labels, words_beside
from course_utils.exercises.nb09.problem import CAUSES, SYMPTOMS
from course_utils.teaching.exercise import Verdict, exercise, expect

_ROWS = words_beside(__file__)
LABELS = {letter: row["cause"] for letter, row in _ROWS.items()}


@exercise("09.1", title="Label the defects", seconds=30)
def label_the_defects(*causes: str) -> Verdict:
    """Check the causes of the symptoms, in the order of the symptoms."""
    expect(
        len(causes) == len(SYMPTOMS),
        f"There are {len(SYMPTOMS)} symptoms, but you give {len(causes)} causes.",
        f"Give one cause for each of {', '.join(SYMPTOMS)}, in this order.",
    )
    causes = tuple(cause.strip() if isinstance(cause, str) else cause for cause in causes)
    expect_known(causes, CAUSES, "causes", "Copy one of CAUSES exactly.")
    said = dict(zip(SYMPTOMS, causes, strict=True))

    def objection(letter: str) -> tuple[str, str]:
        cause, row = said[letter], _ROWS[letter]
        reason = row.get("close", {}).get(cause, CAUSES[cause])
        return f"({letter}) {SYMPTOMS[letter]} You say: {cause}. {reason}.", row["question"]

    return judge_labels(
        said,
        LABELS,
        objection,
        "Ten symptoms, ten causes. Four make the loop hang or leave something behind, three give "
        "wrong results, and three cost speed or memory. Only some raise an error.",
    )
