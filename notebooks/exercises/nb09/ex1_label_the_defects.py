"""Checks of notebook 09. Here: ten symptoms of a prefetcher, and what causes them."""

from __future__ import annotations

from collections.abc import Mapping

from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong

# Each cause, and how it shows.
CAUSES = {
    "thread in __init__": "A thread that starts once runs once, at once, for one epoch",
    "silent thread": "Where a thread dies of an error and tells nobody, whoever waits for it waits "
    "for ever",
    "endless put": "put() in a full queue waits until somebody takes something out, for ever if "
    "nobody does",
    "default stream": "In one queue a copy and a step run one after the other",
    "device of the thread": "The current GPU belongs to a thread, and in a new one it is GPU 0",
    "batch = a pair": "`inputs, targets = batch` works for pairs only, and raises for all else",
    "queue too long": "Each batch that waits in the queue takes memory of the device",
    "no event": "Where no stream waits, a step reads what has not been copied yet, whenever the "
    "loss is read",
    "no record_stream": "Memory is given away while another stream still reads: that needs a "
    "program that runs ahead of its steps",
    "pageable memory": "A copy from pageable memory holds the program up, whatever it asks for",
    "too few workers": "With too few workers the loop waits in next(loader), and nothing breaks",
}

SYMPTOMS = {
    "a": "The second epoch never begins.",
    "b": "A file is broken. The loop waits for ever.",
    "c": "Long after a break, the workers of the loader still run.",
    "d": "The profiler shows copies between the steps, never beside them.",
    "e": "On eight GPUs, the batches of all ranks are on GPU 0.",
    "f": "A batch is a dict of three tensors. The loop waits for ever.",
    "g": "Without the prefetcher a batch size fits. With it: OutOfMemoryError.",
    "h": "Somebody gave it a stream of its own. Now the loss is wrong in every epoch.",
    "i": "Now it waits for its copies. With loss.item() in each step all is right, without it not.",
    "j": "Now all is right. But upload(batch, non_blocking=True) takes as long as the copy.",
}

_LABELS = {
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
_CLOSE: Mapping[tuple[str, str], str] = {
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
    labels = dict(zip(SYMPTOMS, causes, strict=True))
    for letter, symptom in SYMPTOMS.items():
        expect(
            isinstance(labels[letter], str) and labels[letter] in CAUSES,
            f"{labels[letter]!r} is not among the causes.",
            "Copy one of CAUSES, letter by letter.",
        )
        if labels[letter] != _LABELS[letter]:
            return wrong(
                f"({letter}) {symptom} You say: {labels[letter]}. {_objection(letter, labels)}.",
                _QUESTIONS[letter],
            )
    return right(
        "Ten symptoms, ten causes. Four make it hang or stay, three make it wrong, and three "
        "make it useless or too large; only some of them raise an error."
    )


def _objection(letter: str, labels: Mapping[str, str]) -> str:
    return _CLOSE.get((letter, labels[letter]), CAUSES[labels[letter]])
