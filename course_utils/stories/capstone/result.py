"""The results of a learner's scripts: stored next to the notebook, and posted to a wall."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from math import log2

from course_utils.errors import CourseError
from course_utils.paths import scratch_folder
from course_utils.teaching.notebook.wall import parse_address, request
from keepfed.files import replace_file
from keepfed.formatting import percent

TARGET_AU = 0.9
ENOUGH_AU = 0.85  # passes too, because one right script got 86 to 93 % in ten runs
POINTS_AU, POINTS_EACH = 60, 20  # for the GPU, and for each of two limits
A_DOUBLING = 15  # points less for half the AU
_FILE = "capstone.json"
_PATIENCE_S = 10


def points_for(au: float) -> int:
    """Return the points for an AU."""
    return round(min(max(POINTS_AU + A_DOUBLING * log2(max(au, 1e-3) / TARGET_AU), 0), POINTS_AU))


@dataclass(frozen=True, kw_only=True)
class Result:
    """The result of the check of a script."""

    seed: int  # seed of the script's faults, as only results of one seed are comparable
    points: int  # 0 to 100
    refused: str  # why the check refused the script, as a sentence, or ""
    au: float
    start_up_s: float  # time until the first step, without the start-up of workers
    held: int  # most events that the loading held at a time
    events: int  # events per epoch
    samples: int  # samples served in the checked epochs
    distinct: int  # distinct samples of each epoch, summed over epochs
    lost: int  # events that an epoch did not serve, summed over epochs
    when: str  # "2026-11-22T18:40:00"

    @property
    def rescued(self) -> bool:
        """Whether the result was accepted, and its AU as printed is enough."""
        return not self.refused and round(self.au, 2) >= ENOUGH_AU

    @property
    def rank(self) -> tuple[int, float, float]:
        """Sort key, which is larger for better results."""
        return self.points, self.au, -self.start_up_s

    def __str__(self) -> str:
        """Return the result as one line."""
        said = f"{self.points} points: AU {percent(self.au)}, first step after "
        said += f"{self.start_up_s:.1f} s, {self.held:,} of {self.events:,} events held."
        return f"{said} Refused: {self.refused}" if self.refused else said


def results() -> list[Result]:
    """Return all results stored next to this notebook, oldest first."""
    found = []
    with suppress(OSError, ValueError, TypeError, KeyError):
        for one in json.loads((scratch_folder() / _FILE).read_text("utf-8"))["results"]:
            with suppress(TypeError):  # of another version of the course
                found.append(Result(**one))
    return found


def best(seed: int) -> Result | None:
    """Return the best result for `seed`, the first of equals, or None if there is none."""
    return max(
        (one for one in results() if one.seed == seed), key=lambda one: one.rank, default=None
    )


def add_result(result: Result) -> None:
    """Add a result to the stored results."""
    every = [*results(), result]
    text = json.dumps({"results": [asdict(one) for one in every]}, indent=1)
    replace_file(scratch_folder() / _FILE, text)


def now() -> str:
    """Return the local time in the format of `Result.when`."""
    return datetime.now().isoformat(timespec="seconds")


def post(name: str, result: Result | None, address: str) -> str:
    """Post your result under a name of your choice to a wall, and return its answer.

    Args:
        name: Any name. The wall shows it to the class.
        result: The result of the check. The wall gets its seed, points, AU and start-up.
        address: The address of the wall, including its token.
    """
    if not address.strip():
        return "Not posted. The address of the wall is empty. Enter the address of your class."
    if result is None or result.refused:
        return "Not posted. You have no accepted result yet. Run the check of your script first."
    try:
        wall = parse_address(address)
    except CourseError as error:
        return f"Not posted. {error}"
    value = {field: getattr(result, field) for field in ("seed", "points", "au", "start_up_s")}
    status, answer = request(wall, "result", "", value | {"name": name}, _PATIENCE_S)
    if status == 0:
        place = wall.address.partition("//")[2]
        answer = f"There is no answer from {place}. Check that the wall is running and that you "
        answer += "are in the same network."
    return answer if status == 200 else f"Not posted. {answer}"
