"""Judge the blind clinic: by the causes that were named, and by how many probes it took."""

from __future__ import annotations

from collections.abc import Mapping

from course_utils.hardware.machine import usable_cores
from course_utils.teaching.exercise import Verdict, exercise, expect, right, todo
from course_utils.words import plural
from notebooks.stories.clinic import CAUSES, NAMES, Clinic, discharge

EXPERT = 13  # step alone for six, CPU of the workers for four, time of a batch for three

# (said, true) -> what was overlooked; with None: whatever else it truly is
SLIPS = {
    ("storage", "cpu"): "Its workers compute nearly all the time; one that waits for a storage "
    "sleeps.",
    ("storage", "one core"): "Its workers compute half of the time each, and wait for the same "
    "core otherwise, not for a storage.",
    ("cpu", "storage"): "Its workers hardly use the processor: they sleep until data arrive. More "
    "cores would change nothing.",
    ("cpu", "one core"): "Each of its workers gets about half a core, while others are free: they "
    "are not too slow, they share one.",
    ("one core", "cpu"): "Its workers may run on all cores, and compute all the time.",
    ("one core", "storage"): "Its workers hardly use the processor at all, so it cannot be too "
    "little of it.",
    ("gpu", "sync"): "Replaying one batch is slow, but the GPU is idle for much of it: something "
    "else in the step takes the time.",
    ("sync", "gpu"): "Replaying one batch is slow, and the GPU is busy all the time: it is simply "
    "at work.",
    ("cpu", "giant sample"): "Look at the single batches: most are quick, a few take 20 times as "
    "long. The average hides that.",
    (None, "giant sample"): "Most of its batches are quick, a few take very long. A mean over all "
    "of them shows neither.",
    (None, "gpu"): "Replayed on one cached batch it is as slow as before, and its GPU is always "
    "busy: there is nothing to mend in the loader.",
    (None, "sync"): "Replayed on one cached batch it is as slow as before, so its loader cannot be "
    "the reason.",
    ("gpu", None): "Replayed on one cached batch it runs about three times as fast. A GPU that "
    "were the limit could not do that.",
    ("sync", None): "Replayed on one cached batch its step runs about three times as fast: the "
    "step is not what it waits for.",
    ("giant sample", None): "Its batches take about equally long; no single one stands out.",
}


@exercise("03.2", title="The blind clinic")
def blind_clinic(clinic: Clinic, answers: Mapping[str, str]) -> Verdict:
    """Compare the named causes with the true ones, and count the probes."""
    missing = [name for name in NAMES if answers.get(name) is None]
    if missing:
        return todo(f"No cause is named yet for {', '.join(missing)}.")
    unknown = sorted({str(said) for said in answers.values()} - set(CAUSES))
    expect(
        not unknown,
        f"{unknown[0] if unknown else None!r} is not among the causes.",
        f"Choose from: {', '.join(CAUSES)}.",
    )
    expect(
        clinic.probes,
        "You have not used a single probe: that is guessing, not measuring.",
        "Begin with `A.step_alone()`.",
    )
    truth = discharge(clinic)
    wrong = [name for name in NAMES if not _same(answers[name], truth[name])]
    if wrong:
        said, true = answers[wrong[0]], truth[wrong[0]]
        found = len(NAMES) - len(wrong)
        expect(
            False,
            f"{found} of {len(NAMES)} causes are right. Of one that you call {said!r}: "
            f"{_slip(said, true)}",
            f"You have used {plural(clinic.probes, 'probe')}; compare the loops that you call "
            f"{said!r} with the others once more.",
        )
    return right(f"All six, with {plural(clinic.probes, 'probe')}. {_praise(clinic.probes)}")


def _same(said: str, true: str) -> bool:
    if usable_cores() == 1:  # then all workers share a core, and the two cannot be told apart
        said, true = (cause.replace("one core", "cpu") for cause in (said, true))
    return said == true


def _slip(said: str, true: str) -> str:
    for pair in ((said, true), (None, true), (said, None)):
        if pair in SLIPS:
            return SLIPS[pair]
    return "What you measured fits another cause better."


def _praise(probes: int) -> str:
    if probes <= EXPERT:
        return f"An expert needs about {EXPERT}: each of yours was asked to decide something."
    return (
        f"It can be done with {EXPERT}: replay a cached batch first, which settles two loops, "
        "then look at the workers of the other four."
    )
