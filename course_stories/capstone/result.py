"""The results that a learner's scripts had so far, kept beside the notebook."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime

from course_stories.leaderboard import Result
from course_utils.paths import scratch_folder
from keepfed.files import replace_file

_FILE = "capstone.json"


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
    return max(
        (one for one in results() if one.seed == seed), key=lambda one: one.rank, default=None
    )


def keep(result: Result) -> None:
    """Add a result to those that were had."""
    every = [*results(), result]
    text = json.dumps({"results": [one.to_json() for one in every]}, indent=1)
    replace_file(scratch_folder() / _FILE, text)


def now() -> str:
    """Return the local time as a result has it."""
    return datetime.now().isoformat(timespec="seconds")
