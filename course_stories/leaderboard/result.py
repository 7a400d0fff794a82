"""What a rescued training is worth: one result, as it is kept and as it is posted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Self

from keepfed.words import percent

TARGET_AU = 0.9
_TYPES = {"int": (int,), "float": (int, float), "str": (str,)}
_MOST = {"points": 100, "au": 1.0, "refused": 500, "when": 40}  # of a text: characters


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the grader found out about a script."""

    seed: int  # of the faults that it had; results of one seed can be compared
    points: int  # 0 to 100
    refused: str  # why it is no rescue, in a sentence; or nothing
    au: float
    start_up_s: float  # until the first step, without what any workers take to start
    held: int  # most events that the loading held at a time
    events: int  # in an epoch of that run
    samples: int  # served in the audited epochs
    distinct: int  # of them: in each epoch, summed over epochs
    lost: int  # events of an epoch that never came, summed over epochs
    when: str  # "2026-11-22T18:40:00"

    @property
    def rescued(self) -> bool:
        """Whether the GPU is fed, with the right samples, within the limits."""
        return not self.refused and self.au >= TARGET_AU

    @property
    def rank(self) -> tuple[int, float, float]:
        """What the better of two results has more of."""
        return self.points, self.au, -self.start_up_s

    def __str__(self) -> str:
        """Say it in a line."""
        said = f"{self.points} points: AU {percent(self.au)}, first step after "
        said += f"{self.start_up_s:.1f} s, {self.held:,} of {self.events:,} events held."
        return f"{said} Refused: {self.refused}" if self.refused else said

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON has them."""
        return asdict(self)

    @classmethod
    def from_json(cls, given: object) -> Self:
        """Return the result that `to_json` made these fields of; what else is there is left out.

        Raises:
            ValueError: they are those of no result; the sentence names the first that is wrong.
        """
        if not isinstance(given, Mapping):
            raise ValueError("This is no result: send an object with its fields.")
        for field in fields(cls):
            if field.name not in given:
                raise ValueError(f"The result has no {field.name!r}; send all of its fields.")
            value = given[field.name]
            if type(value) not in _TYPES[str(field.type)]:
                raise ValueError(f"{field.name!r} is {value!r:.40}, which is no {field.type}.")
            amount = len(value) if isinstance(value, str) else value
            if not 0 <= amount <= _MOST.get(field.name, 10**9):  # NaN is neither
                raise ValueError(f"{field.name!r} is {value!r:.40}, which cannot be.")
        try:
            datetime.fromisoformat(given["when"])
        except ValueError:
            raise ValueError(f"'when' is {given['when']!r:.40}, which is no time.") from None
        return cls(**{field.name: given[field.name] for field in fields(cls)})
