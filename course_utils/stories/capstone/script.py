"""Write a training script with seven faults and a decoy, and import what the learner made of it.

The script is the fixed script with faults put back. A seed selects the faults, and learners who
work alone use seed 0. The fixed script and the faults are stored as text in the exercise's folder.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from pathlib import Path
from types import ModuleType

from course_utils.errors import CourseError
from course_utils.paths import scratch_folder
from course_utils.teaching.notebook.worker_module import define
from keepfed.errors import sentence
from keepfed.files import replace_file

DECOY = "decoy"  # place of code that looks slow and costs nothing
_FIRST_LINE = "# rescue_{seed}.py, with the faults of seed {seed}. Keep this line.\n"
_SEED = re.compile(r"# rescue_(\d+)\.py\b")


@dataclass(frozen=True)
class Fault:
    """A fault that a colleague may have put into the script."""

    place: str  # part of the script, which gets one fault
    name: str
    costs: str  # the figure that reveals it: "au", "samples", "held", "start_up" or "nothing"
    why: str
    changes: list[list[str]]  # pairs of right and faulty text

    def put_into(self, text: str) -> str:
        """Return the script with this fault.

        Raises:
            ValueError: If a text to replace is missing, or occurs more than once.
        """
        for right, faulty in self.changes:
            if text.count(right) != 1:
                raise ValueError(f"{self.name}: {right!r} occurs {text.count(right)} times, not 1.")
            text = text.replace(right, faulty)
        return text

    def is_in(self, text: str) -> bool:
        """Return whether a script still has this fault."""
        return all(faulty in text for _, faulty in self.changes)


def hand_out(seed: int = 0, folder: str | Path = ".") -> Path:
    """Write the script with the faults of `seed` unless it exists, and return its path.

    Raises:
        CourseError: If the seed is negative, or the folder does not exist or is not writable.
    """
    if seed < 0:
        raise CourseError(f"`seed` must be at least 0, but is {seed}.")
    path = Path(folder) / f"rescue_{seed}.py"
    if not path.exists():
        try:
            replace_file(path, handed_out(seed))
        except OSError as error:
            named = OSError(error.errno, error.strerror, str(path))
            raise CourseError(sentence(named, elsewhere="choose another folder")) from None
    return path


def seed_of(script: str | Path) -> int:
    """Return the seed of a script. Its first line contains the seed, whatever the file is called.

    Raises:
        CourseError: If the first line is missing, or the file cannot be read.
    """
    if found := _SEED.match(_text_of(script)):
        return int(found[1])
    raise CourseError(
        f"The first line of {Path(script).name} is missing, which contains the seed of its faults. "
        f"Put it back: {_FIRST_LINE.format(seed=0).rstrip()}"
    )


def handed_out(seed: int) -> str:
    """Return the text of the script with the faults of a seed."""
    return script_with(faults_of(seed), seed=seed)


def script_with(faults: Iterable[Fault], *, seed: int = 0) -> str:
    """Return the text of the script of a seed with some faults, or without any."""
    text = re.sub(r"  # type: ignore\[.*\]$", "", _texts()[0], flags=re.MULTILINE)
    for fault in faults:
        text = fault.put_into(text)
    return _FIRST_LINE.format(seed=seed) + text


def faults_of(seed: int) -> list[Fault]:
    """Return seven faults and a decoy, one for each place. Seed 0 has the first ones."""
    rng = random.Random(seed)
    places = [list(group) for _, group in groupby(all_faults(), lambda fault: fault.place)]
    return [place[0] if seed == 0 else rng.choice(place) for place in places]


def decoy_of(seed: int) -> Fault:
    """Return the code in the script of a seed that looks slow and costs nothing."""
    return next(fault for fault in faults_of(seed) if fault.place == DECOY)


def all_faults() -> list[Fault]:
    """Return all faults, grouped by place."""
    return [Fault(**fields) for fields in tomllib.loads(_texts()[1])["fault"]]


@cache
def _texts() -> tuple[str, str]:
    folder = resources.files("course_utils.exercises") / "nb13"
    return (folder / "fixed.py").read_text("utf-8"), (folder / "faults.toml").read_text("utf-8")


def load(script: str | Path) -> ModuleType:
    """Import the current script from a copy `my_...`, which workers can import too.

    Raises:
        CourseError: If the file does not exist, or running it raises an error.
    """
    path, text = Path(script), _text_of(script)
    # `define` adds a first line, so drop our first comment to keep the line numbers
    first, _, rest = text.partition("\n")
    cell = rest if first.startswith("#") else text
    return define(f"my_{path.stem}", cell, folder=scratch_folder() / "nb13", of=path.name)


def _text_of(script: str | Path) -> str:
    try:
        return Path(script).read_text("utf-8")
    except OSError as error:
        raise CourseError(f"Cannot read {script}: {error.strerror}.") from None
