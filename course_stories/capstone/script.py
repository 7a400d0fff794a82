"""Write a training script with seven faults, and import what the learner made of it.

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
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from types import ModuleType

from course_utils.errors import CourseError
from course_utils.paths import scratch_folder
from course_utils.teaching.notebook.worker_module import define
from keepfed.errors import sentence
from keepfed.files import replace_file

_NAME = re.compile(r"rescue_(\d+)")


@dataclass(frozen=True)
class Fault:
    """A fault that a colleague may have put into the script."""

    place: str  # part of the script, which gets one fault
    name: str
    costs: str  # the figure that reveals it: "au", "samples", "held" or "start_up"
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


def hand_out(seed: int = 0, folder: str | Path = ".") -> Path:
    """Write the script with the faults of `seed` unless it exists, and return its path.

    Raises:
        CourseError: If the seed is negative, or the folder does not exist or is not writable.
    """
    if seed < 0:
        raise CourseError(f"`seed` must be at least 0, but is {seed}.")
    path = Path(folder) / f"rescue_{seed}.py"
    if not path.parent.is_dir():
        raise CourseError(
            f"The folder {path.parent} does not exist. Create it, or choose another folder."
        )
    if not path.exists():
        try:
            replace_file(path, handed_out(seed))
        except OSError as error:
            named = OSError(error.errno, error.strerror, str(path))
            raise CourseError(sentence(named, elsewhere="choose another folder")) from None
    return path


def seed_of(script: str | Path) -> int:
    """Return the seed of a script, which is part of its file name; 0 by default."""
    found = _NAME.fullmatch(Path(script).stem)
    return int(found[1]) if found else 0


def handed_out(seed: int) -> str:
    """Return the text of the script with the faults of a seed."""
    return script_with(faults_of(seed), title=f"# rescue_{seed}.py: it works, but it is slow.")


def script_with(faults: Iterable[Fault], *, title: str = "# The fixed script.") -> str:
    """Return the text of the script with some faults, or of the fixed script without any."""
    text = re.sub(r"  # type: ignore\[.*\]$", "", _texts()[0], flags=re.MULTILINE)
    for fault in faults:
        text = fault.put_into(text)
    return f"{title}\n{text}"


def faults_of(seed: int) -> list[Fault]:
    """Return the seven faults of a seed, one for each place, for seed 0 the usual ones."""
    rng = random.Random(seed)
    places = [list(group) for _, group in groupby(all_faults(), lambda fault: fault.place)]
    return [place[0] if seed == 0 else rng.choice(place) for place in places]


def all_faults() -> list[Fault]:
    """Return all faults, grouped by place."""
    return [Fault(**fields) for fields in tomllib.loads(_texts()[1])["fault"]]


@cache
def _texts() -> tuple[str, str]:
    home = find_spec("course_exercises.nb13")
    if home is None or not home.submodule_search_locations:
        raise CourseError("The exercises are not installed. Run `course check`.")
    folder = Path(home.submodule_search_locations[0])
    return tuple((folder / name).read_text("utf-8") for name in ("fixed.py", "faults.toml"))  # type: ignore[return-value]


def load(script: str | Path) -> ModuleType:
    """Import the current script from a copy `my_...`, which workers can import too.

    Raises:
        CourseError: If the file does not exist, or running it raises an error.
    """
    path = Path(script)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise CourseError(f"Cannot read {path}: {error.strerror}.") from None
    # `define` adds a first line, so drop our first comment to keep the line numbers
    first, _, rest = text.partition("\n")
    cell = rest if first.startswith("#") else text
    return define(f"my_{path.stem}", cell, folder=scratch_folder() / "nb13", of=path.name)
