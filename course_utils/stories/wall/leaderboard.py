"""The result of a rescued training, which a learner may post to the wall of a class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from math import log2
from typing import Any, Self

from course_utils.errors import CourseError
from course_utils.teaching.notebook.wall import parse_address, request
from keepfed.formatting import percent

TARGET_AU = 0.9
ENOUGH_AU = 0.85  # passes too, because one right script got 86 to 93 % in ten runs
POINTS_AU, POINTS_EACH = 60, 20  # for the GPU, and for each of two limits
A_DOUBLING = 15  # points less for half the AU
_TYPES = {"int": (int,), "float": (int, float), "str": (str,)}
_MOST = {"points": 100, "au": 1.0, "refused": 500, "when": 40}  # values, or lengths of strings
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

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Create a result from fields of `to_json`, ignoring other fields.

        Raises:
            ValueError: If a field is missing or not valid. The message names the first one.
        """
        for field in fields(cls):
            value: Any = given.get(field.name)
            amount = len(value) if isinstance(value, str) else value
            most = _MOST.get(field.name, 10**9)
            if type(value) not in _TYPES[str(field.type)] or not 0 <= amount <= most:  # NaN too
                raise ValueError(f"{field.name!r} is {value!r:.40}, which is not a possible value.")
        return cls(**{field.name: given[field.name] for field in fields(cls)})


def post(name: str, result: Result | None, board: str) -> str:
    """Post your result under a name of your choice, and return the answer of the wall.

    Args:
        name: Any name. The wall shows it to the class.
        result: The result of the check. The function sends nothing else about you.
        board: The address of the wall, including its token.
    """
    if not board.strip():
        return "Not posted. The address of the wall is empty. Enter the address of your class."
    if result is None:
        return "Not posted. You have no result yet. Run the check of your script first."
    try:
        wall = parse_address(board)
    except CourseError as error:
        return f"Not posted. {error}"
    value = {"name": name, **result.to_json()}
    status, answer = request(wall, "result", str(result.seed), value, _PATIENCE_S)
    if status == 0:
        place = wall.address.partition("//")[2]
        answer = f"There is no answer from {place}. Check that the wall is running and that you "
        answer += "are in the same network."
    return answer if status == 200 else f"Not posted. {answer}"
