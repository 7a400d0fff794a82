"""Exercise 09.1: ten symptoms of a prefetcher, and what causes them."""

from course_utils.teaching.exercise import Verdict, exercise, expect
from notebooks.exercises.judging import expect_known, judge_labels
from notebooks.exercises.nb09.problem import CAUSES, SYMPTOMS

LABELS = {
    "a": "thread in __init__",
    "b": "silent thread",
    "c": "endless put",
    "d": "default stream",
    "e": "device of the thread",
    "f": "batch = a pair",
    "g": "queue too long",
    "h": "no event",
    "i": "no record_stream",
    "j": "pageable memory",
}

_QUESTIONS = {
    "a": "When does the thread start, and how often?",
    "b": "Which thread gets the exception, and who hears of it?",
    "c": "Where does the thread stand when nobody asks for batches any more?",
    "d": "Into which queue does a copy go, if nobody says where?",
    "e": "What does `cuda` without a number mean, and where is that kept?",
    "f": "Which line works with the parts of a batch?",
    "g": "How many batches are on the device when all is waiting?",
    "h": "Two streams: who told the steps to wait for the copies?",
    "i": "Without item() the program is ahead of the GPU. What has Python dropped by then?",
    "j": "What did the first picture of this notebook say about non_blocking?",
}

# Close calls: (symptom, answer) -> why it is not that one.
_CLOSE = {
    ("f", "silent thread"): "That a dead thread is silent explains the waiting. But what has it "
    "died of? Another loader, with pairs, runs through",
    ("c", "thread in __init__"): "A thread started in __iter__ would be left behind just the same",
    ("d", "pageable memory"): "A batch in pinned memory shows the same picture: the copies are in "
    "the queue of the steps",
    ("e", "default stream"): "A default stream is one of its device. Which device?",
    ("h", "no record_stream"): "Memory that is given away too early spoils the loss when the "
    "program runs ahead. Here every epoch is wrong, the first batch too",
    ("i", "no event"): "It does wait for its copies now. What differs is when the losses are read",
}


@exercise("09.1", title="Label the defects")
def label_the_defects(*causes: str) -> Verdict:
    """Judge the causes of the symptoms, in their order."""
    expect(
        len(causes) == len(SYMPTOMS),
        f"There are {len(SYMPTOMS)} symptoms, and you give {len(causes)} causes.",
        f"Give one for each of {', '.join(SYMPTOMS)}, in this order.",
    )
    expect_known(causes, CAUSES, "causes", "Copy one of CAUSES, letter by letter.")
    said = dict(zip(SYMPTOMS, causes, strict=True))

    def objection(letter: str) -> tuple[str, str]:
        cause = said[letter]
        reason = _CLOSE.get((letter, cause), CAUSES[cause])
        return f"({letter}) {SYMPTOMS[letter]} You say: {cause}. {reason}.", _QUESTIONS[letter]

    return judge_labels(
        said,
        LABELS,
        objection,
        "Ten symptoms, ten causes. Four make it hang or stay, three make it wrong, and three "
        "make it useless or too large; only some of them raise an error.",
    )
