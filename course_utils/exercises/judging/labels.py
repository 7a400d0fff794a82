"""Judge labels: what belongs to what."""

import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from course_utils.teaching.exercise import Refused, Verdict, expect, right, todo, wrong


def read_labels(answers: object, things: Collection[str], what: str) -> dict[str, str]:
    """Return the label of each thing; end the check as not attempted while one is missing.

    The keys of `answers` may be written in capitals or not. `what` is a label, such as "cause".
    """
    names = {thing.lower(): thing for thing in things}
    expect(
        isinstance(answers, Mapping) and {str(key).strip().lower() for key in answers} <= {*names},
        f"Your answer must be a dict. Its keys are {', '.join(things)}, and its values are the "
        f"{what}s.",
        f'Write {{"{next(iter(things))}": "...", ...}}.',
    )
    assert isinstance(answers, Mapping)
    labels = {names[str(key).strip().lower()]: label for key, label in answers.items()}
    missing = [thing for thing in things if str(labels.get(thing, "")).strip() in ("", "None")]
    if missing:
        raise Refused(todo(f"No {what} is named yet for {', '.join(missing)}."))
    return {thing: str(labels[thing]).strip() for thing in things}


def expect_known(said: Iterable[object], known: Collection[str], what: str, choose: str) -> None:
    """Refuse a label that is not among those there are: `what` they are called."""
    unknown = [one for one in said if not (isinstance(one, str) and one in known)]
    expect(not unknown, f"{unknown[0] if unknown else None!r} is not among the {what}.", choose)


def judge_labels(
    said: Mapping[str, object],
    true: Mapping[str, object],
    objection: Callable[[str], tuple[str, str]],
    praise: str,
) -> Verdict:
    """Judge each label, in the order of `true`.

    What is wrong with the label of a thing, and what to do now, is for `objection` to say.
    """
    for thing, label in true.items():
        if said[thing] != label:
            return wrong(*objection(thing))
    return right(praise)


def words_beside(module: str) -> dict[str, Any]:
    """Return what the TOML file beside the `__file__` of an exercise says."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text("utf-8"))
