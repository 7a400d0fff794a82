"""Exercise 03.1, the blind clinic: which causes were named, and how many probes it took."""

from collections.abc import Mapping

from course_exercises.judging import expect_known, judge_labels, words_beside
from course_stories.clinic import CAUSES, NAMES, Clinic, discharge
from course_utils.hardware.machine import usable_cores
from course_utils.teaching.exercise import Verdict, exercise, expect, todo
from keepfed.formatting import plural

LEAST = 8  # step alone for five, and three among the other four
EXPERT = 13  # step alone for six, CPU of the workers for four, time of a batch for three

SLIPS = words_beside(__file__)


@exercise("03.1", title="The blind clinic")
def blind_clinic(clinic: Clinic, answers: Mapping[str, str]) -> Verdict:
    """Compare the named causes with the true ones, and count the probes."""
    missing = [name for name in NAMES if name not in answers or answers[name] is None]
    if missing:
        return todo(f"No cause is named yet for {', '.join(missing)}.")
    answers = {name: str(answers[name]).strip() for name in NAMES}
    expect_known(answers.values(), CAUSES, "causes", f"Choose from: {', '.join(CAUSES)}.")
    expect(
        clinic.probes,
        "You have not used a single probe: that is guessing, not measuring.",
        "Begin with `A.step_alone()`.",
    )
    true, probes = discharge(clinic), plural(clinic.probes, "probe")
    told, truth = _told_apart(answers), _told_apart(true)
    found = sum(told[name] == truth[name] for name in NAMES)

    def objection(name: str) -> tuple[str, str]:
        said = answers[name]
        again = "Where a probe said that the machine was busy, use it again. " * clinic.disturbed
        return (
            f"{found} of {len(NAMES)} causes are right. Of one that you call {said!r}: "
            f"{_slip(said, true[name])}",
            f"{again}Compare the loops that you call {said!r} with the others once more. You have "
            f"used {probes}.",
        )

    return judge_labels(told, truth, objection, f"All six, with {probes}. {_praise(clinic.probes)}")


def _told_apart(causes: Mapping[str, str]) -> dict[str, str]:
    """Return the causes as far as this machine tells them apart, by the names of the loops."""
    # where all workers share one core, two causes look alike
    alike = {"one core": "cpu"} if usable_cores() == 1 else {}
    return {name: alike.get(causes[name], causes[name]) for name in NAMES}


def _slip(said: str, true: str) -> str:
    for one, other in ((said, true), ("any", true), (said, "any")):
        if idea := SLIPS.get(one, {}).get(other):
            return str(idea)
    return "What you measured fits another cause better."


def _praise(probes: int) -> str:
    if probes < LEAST:
        return "So few cannot tell six causes apart: some of it was luck."
    if probes <= EXPERT:
        return f"An expert needs about {EXPERT}: each of yours was asked to decide something."
    return (
        f"It can be done with {EXPERT}: replay a cached batch first, which settles two loops, "
        "then look at the workers of the other four."
    )
