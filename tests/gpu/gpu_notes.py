"""Findings of a part of `run.py`, which are printed and saved immediately."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Notes:
    """The findings of one part, saved in `folder/notes/PART.json` after each finding."""

    def __init__(self, part: str, folder: Path, about: dict[str, str]):
        """Start without findings; `about` describes machine and date."""
        self.folder, self.about, self.failures = folder, about, 0
        self._all: dict[str, Any] = {"part": part, **about, "found": {}}
        self._path = folder / "notes" / f"{part}.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def attempt(self, name: str, work: Callable[[], Any]) -> None:
        """Record the result or the error of `work`, and continue.

        Errors count as failures, but missing libraries do not.
        """
        begun = time.perf_counter()
        entry: dict[str, Any] = {}
        try:
            entry["found"] = work()
            words = entry["found"]
        except ImportError as error:
            words = entry["not run"] = str(error)
            words = f"NOT RUN: {words}"
        except Exception as error:  # continue after any error
            self.failures += 1
            kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
            entry["failed"], entry["where"] = f"{kind}{error}", traceback.format_exc()
            words = f"FAILED: {entry['failed']}"
        entry["seconds"] = round(time.perf_counter() - begun, 2)
        self._all["found"][name] = entry
        self._path.write_text(json.dumps(self._all, indent=1, default=str) + "\n")
        print(f"  {name:36} {words}", flush=True)
