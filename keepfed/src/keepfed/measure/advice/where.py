"""Select the lines of code that a verdict names."""

from __future__ import annotations

import re

from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.rules import Cause
from keepfed.measure.stacks import HotLine

NOTABLE = 0.1  # smallest share of a part that is worth naming
MOST = 3  # lines that are named
MAINLY = 0.3  # share of a fetch above which a line decides the advice
LISTS = re.compile(r"listdir|scandir|iterdir|glob|os\.walk")
FILTERS = re.compile(r"\.query\b|\.filter\b|\[.*==")


def part_of(m: Measurements, cause: Cause) -> str:
    """Return the part of the loop to which a cause belongs."""
    if cause in ("GPU-bound", "transfer"):
        return "loop"
    if cause == "main process":
        return "sampler" if m.paces.sampling_s > m.host_s else "loop"
    collates = cause == "collate or IPC" and m.fetching.collate_s > m.fetching.fetch_s / 2
    return "collate" if collates and m.lines.get("collate") else "fetch"


def lines_of(m: Measurements, cause: Cause) -> list[HotLine]:
    """Return the lines that take most of the time of a cause, the largest share first."""
    lines = m.lines.get(part_of(m, cause), ())
    return [line for line in lines if line.share >= NOTABLE][:MOST]


def find(m: Measurements, calls: re.Pattern[str]) -> HotLine | None:
    """Return a line with such a call that takes much of a fetch, or None."""
    lines = (one for one in m.lines.get("fetch", ()) if one.share >= MAINLY)
    return next((one for one in lines if calls.search(one.source)), None)


def decompresses(m: Measurements) -> HotLine | None:
    """Return a line that takes much of a fetch for decompressing, or None."""
    lines = (one for one in m.lines.get("fetch", ()) if one.share >= MAINLY)
    return next((one for one in lines if one.work == "decompressing"), None)


def at(line: HotLine | None) -> str:
    """Return where a line is, as part of a sentence, or "" if there is none."""
    return f" ({line.place})" if line else ""
