"""Hand out a training script with seven faults, and load what has become of it.

The script is the mended one with faults put back; which ones depends on a seed, 0 for all who learn
alone. Both lie with the exercise, as text: nobody who learns imports them.
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
    """Something that a colleague may have done to the script."""

    place: str  # where in the script; there is one fault in each place
    name: str
    costs: str  # what gives it away: "au", "samples", "held" or "start_up"
    why: str
    changes: list[list[str]]  # from the mended text to the faulty one

    def put_into(self, text: str) -> str:
        """Return the script with this fault.

        Raises:
            ValueError: it has not what is to be changed, or more than once.
        """
        for right, faulty in self.changes:
            if text.count(right) != 1:
                raise ValueError(f"{self.name}: {right!r} is there {text.count(right)} times.")
            text = text.replace(right, faulty)
        return text


def hand_out(seed: int = 0, folder: str | Path = ".") -> Path:
    """Write the script with the faults of `seed`, unless it is there already, and return its path.

    Raises:
        CourseError: the seed is negative, there is no such folder, or it cannot be written to.
    """
    if seed < 0:
        raise CourseError(f"A seed of {seed} cannot be; take 0, or a larger whole number.")
    path = Path(folder) / f"rescue_{seed}.py"
    if not path.parent.is_dir():
        raise CourseError(
            f"There is no folder {path.parent}; make it first, or choose another one."
        )
    if not path.exists():
        try:
            replace_file(path, handed_out(seed))
        except OSError as error:
            named = OSError(error.errno, error.strerror, str(path))
            raise CourseError(sentence(named, elsewhere="choose another folder")) from None
    return path


def seed_of(script: str | Path) -> int:
    """Return the seed of the faults that a script was handed out with; its name says it."""
    found = _NAME.fullmatch(Path(script).stem)
    return int(found[1]) if found else 0


def handed_out(seed: int) -> str:
    """Return the text of the script as it is handed out."""
    return script_with(faults_of(seed), title=f"# rescue_{seed}.py: it works, but it is slow.")


def script_with(faults: Iterable[Fault], *, title: str = "# The mended script.") -> str:
    """Return the text of the script with some faults; without any it is mended."""
    text = re.sub(r"  # type: ignore\[.*\]$", "", _texts()[0], flags=re.MULTILINE)
    for fault in faults:
        text = fault.put_into(text)
    return f"{title}\n{text}"


def faults_of(seed: int) -> list[Fault]:
    """Return the seven faults of a seed, one for each place: for 0 the usual ones."""
    rng = random.Random(seed)
    places = [list(group) for _, group in groupby(all_faults(), lambda fault: fault.place)]
    return [place[0] if seed == 0 else rng.choice(place) for place in places]


def all_faults() -> list[Fault]:
    """Return every fault there is, those of a place together."""
    return [Fault(**fields) for fields in tomllib.loads(_texts()[1])["fault"]]


@cache
def _texts() -> tuple[str, str]:
    home = find_spec("course_exercises.nb13")
    if home is None or not home.submodule_search_locations:
        raise CourseError("The exercises are not installed; run `course check`.")
    folder = Path(home.submodule_search_locations[0])
    return tuple((folder / name).read_text("utf-8") for name in ("mended.py", "faults.toml"))  # type: ignore[return-value]


def load(script: str | Path) -> ModuleType:
    """Import the script anew, from a copy `my_...` that workers can import too.

    Raises:
        CourseError: there is no such file, or it does not run.
    """
    path = Path(script)
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise CourseError(f"{path} cannot be read: {error.strerror}.") from None
    # `define` puts a line of its own before the text, and the first one here is a comment
    first, _, rest = text.partition("\n")
    cell = rest if first.startswith("#") else text
    return define(f"my_{path.stem}", cell, folder=scratch_folder() / "nb13", of=path.name)
