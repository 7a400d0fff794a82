"""The result of a rescued training, as it is stored and posted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from math import log2
from typing import Any, Self

from keepfed.formatting import percent

TARGET_AU = 0.9
ENOUGH_AU = 0.85  # passes too, because one right script got 86 to 93 % in ten runs
POINTS_AU, POINTS_EACH = 60, 20  # for the GPU, and for each of two limits
A_DOUBLING = 15  # points less for half the AU
_TYPES = {"int": (int,), "float": (int, float), "str": (str,)}
_MOST = {"points": 100, "au": 1.0, "refused": 500, "when": 40}  # values, or lengths of strings
_YEARS = range(2020, 2100)


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

    def require_plausible(self) -> None:
        """Check that the fields of an accepted result agree.

        Raises:
            ValueError: If they do not. The message says which ones.
        """
        if self.points > points_for(self.au) + 2 * POINTS_EACH:
            raise ValueError(f"{self.points} points need a higher AU than {percent(self.au)}.")
        if not 0 < self.held <= self.events or not 0 < self.distinct <= self.samples:
            raise ValueError("The numbers of events and samples do not agree. Run the check again.")
        if datetime.fromisoformat(self.when).year not in _YEARS:
            raise ValueError(f"'when' is {self.when}. Set the clock of your machine.")

    def __str__(self) -> str:
        """Return the result as one line."""
        said = f"{self.points} points: AU {percent(self.au)}, first step after "
        said += f"{self.start_up_s:.1f} s, {self.held:,} of {self.events:,} events held."
        return f"{said} Refused: {self.refused}" if self.refused else said

    def to_json(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: object) -> Self:
        """Create a result from fields of `to_json`, ignoring other fields.

        Raises:
            ValueError: If a field is missing or invalid. The message names the first one.
        """
        if not isinstance(given, Mapping):
            raise ValueError("The data are not a result. Send a JSON object with its fields.")
        for field in fields(cls):
            if field.name not in given:
                raise ValueError(f"The result has no {field.name!r}. Send all of its fields.")
            value = given[field.name]
            if type(value) not in _TYPES[str(field.type)]:
                raise ValueError(f"{field.name!r} is {value!r:.40}, but must be {field.type}.")
            amount = len(value) if isinstance(value, str) else value
            if not 0 <= amount <= _MOST.get(field.name, 10**9):  # rejects NaN too
                raise ValueError(f"{field.name!r} is {value!r:.40}, which is out of range.")
        try:
            datetime.fromisoformat(given["when"])
        except ValueError:
            raise ValueError(f"'when' is {given['when']!r:.40}, but must be an ISO time.") from None
        return cls(**{field.name: given[field.name] for field in fields(cls)})
