"""Exercise 03.1, the blind clinic: name the causes of six slow loops with few probes."""

from collections.abc import Mapping

from course_utils.exercises.judging import expect_known, judge_labels, read_labels, words_beside
from course_utils.hardware.machine import usable_cores
from course_utils.stories.clinic import CAUSES, NAMES, Clinic, discharge
from course_utils.teaching.exercise import Verdict, exercise, expect
from keepfed.formatting import plural

EXPERT = 13  # step alone for six, CPU use of the workers for four, batch times for three

SIGNS = words_beside(__file__)  # cause -> what the probes show for such a loop


@exercise("03.1", title="The blind clinic", seconds=30)
def blind_clinic(clinic: Clinic, answers: Mapping[str, str]) -> Verdict:
    """Compare the named causes with the true ones, and count the probes."""
    causes = {name: said.lower() for name, said in read_labels(answers, NAMES, "cause").items()}
    expect_known(causes.values(), CAUSES, "causes", f"Choose from: {', '.join(CAUSES)}.")
    expect(
        clinic.probes,
        "You have not used a single probe. That is guessing, not measuring.",
        "Begin with `A.step_alone()`.",
    )
    true, probes = discharge(clinic), plural(clinic.probes, "probe")
    told, truth = _distinguishable(causes), _distinguishable(true)
    found = sum(told[name] == truth[name] for name in NAMES)

    def objection(name: str) -> tuple[str, str]:
        said = causes[name]
        again = "If a probe reported a busy machine, use it again. " * clinic.disturbed
        return (
            f"{found} of {len(NAMES)} causes are right. One loop that you call {said!r} has "
            f"another cause. {SIGNS[said]}",
            f"{again}Compare the loops that you call {said!r} with the others again. You have "
            f"used {probes}.",
        )

    return judge_labels(
        told,
        truth,
        objection,
        f"All six, with {probes}. {EXPERT} are enough: replay a cached batch first, which settles "
        "two loops, then look at the workers of the other four.",
    )


def _distinguishable(causes: Mapping[str, str]) -> dict[str, str]:
    """Return the causes by loop; on a machine with one core, two causes look the same."""
    alike = {"one core": "cpu"} if usable_cores() == 1 else {}
    return {name: alike.get(causes[name], causes[name]) for name in NAMES}
