"""Select the lines of code that a finding names."""

from __future__ import annotations

from collections.abc import Sequence

from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.rules import Cause, sampler_takes_most
from keepfed.measure.stacks import HotLine

NOTABLE = 0.1  # smallest share of a part that is worth naming
MOST = 3  # lines that are named
MAINLY = 0.3  # share of a fetch above which a line decides the advice


def lines_of(m: Measurements, cause: Cause) -> tuple[HotLine, ...]:
    """Return the lines that take most of the time of a cause, the largest share first."""
    part = "fetch"
    if cause in ("GPU-bound", "transfer", "main process"):
        part = "sampler" if cause == "main process" and sampler_takes_most(m) else "loop"
    elif cause == "collate or IPC" and m.fetching.collate_s > m.fetching.fetch_s / 2:
        part = "collate" if m.lines.get("collate") else "fetch"
    return tuple(line for line in m.lines.get(part, ()) if line.share >= NOTABLE)[:MOST]


def hot_line(m: Measurements, called: Sequence[str]) -> HotLine | None:
    """Return a line that spends much of a fetch in one of these functions or packages, or None."""
    for line in m.lines.get("fetch", ()):
        names = line.library, line.call.rpartition(".")[2]
        if line.share >= MAINLY and any(name in called for name in names):
            return line
    return None
