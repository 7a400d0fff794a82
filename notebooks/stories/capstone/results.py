"""What a rescued training is worth: one result, and all that were had so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from math import isfinite
from typing import Any, Self

from course_utils.paths import replace_file, scratch_folder
from course_utils.words import percent

TARGET_AU = 0.9
_FILE = "capstone.json"
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
        """Return the result that `to_json` made these fields of.

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
            if not isfinite(amount) or not 0 <= amount <= _MOST.get(field.name, 10**9):
                raise ValueError(f"{field.name!r} is {value!r:.40}, which cannot be.")
        return cls(**{field.name: given[field.name] for field in fields(cls)})


def results() -> list[Result]:
    """Return all results that were had beside this notebook, oldest first."""
    found = []
    with suppress(OSError, ValueError, TypeError, KeyError):
        for one in json.loads((scratch_folder() / _FILE).read_text("utf-8"))["results"]:
            with suppress(ValueError):
                found.append(Result.from_json(one))
    return found


def best(seed: int) -> Result | None:
    """Return the first of those results of `seed` that have most points; None: there is none."""
    return max((one for one in results() if one.seed == seed), key=_rank, default=None)


def keep(result: Result) -> None:
    """Add a result to those that were had."""
    every = [*results(), result]
    text = json.dumps({"results": [one.to_json() for one in every]}, indent=1)
    replace_file(scratch_folder() / _FILE, text)


def now() -> str:
    """Return the local time as a result has it."""
    return datetime.now().isoformat(timespec="seconds")


def _rank(result: Result) -> tuple[int, float, float]:
    return result.points, result.au, -result.start_up_s
