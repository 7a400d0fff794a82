"""Read the recordings of real GPUs that come with the course.

Each is a trace of a loop on a GPU, and one of an emulated device with the times measured there;
`make gpu-check` makes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_utils.paths import shipped
from keepfed.formatting import percent
from keepfed.measure.exchange import load_chrome
from keepfed.measure.trace import Trace

if TYPE_CHECKING:
    from keepfed.measure.picture import TimelineGrid

MEASURED, EMULATED = "-measured.json", "-emulated.json"  # how the files of a recording end


@dataclass(frozen=True)
class Recording:
    """One training loop on a real GPU and on its emulated twin."""

    about: Mapping[str, Any]  # loop, GPU, date, command
    measured: Trace
    emulated: Trace

    def timeline(self) -> TimelineGrid:
        """Return both in one picture, on one time axis."""
        from keepfed.measure.picture import Picture, TimelineGrid

        names = [f"measured, {self.about['gpu']}", "emulated"]
        return TimelineGrid([], {"": Picture([self.measured, self.emulated], names)})

    def __str__(self) -> str:
        """Say what was recorded, where and when, and how busy the two devices were."""
        measured, emulated = (t.summary().utilisation for t in (self.measured, self.emulated))
        return (
            f"{self.about['loop']['name']}: GPU busy {percent(measured)} measured, "
            f"{percent(emulated)} emulated, {100 * abs(measured - emulated):.1f} points apart "
            f"({', '.join(self.about[name] for name in ('gpu', 'date', 'command'))})"
        )


def recordings(folder: Path | None = None) -> list[Recording]:
    """Return the recordings that `tests/gpu/run.py` left in a folder, by name."""
    found = []
    for path in sorted((folder or shipped("recordings")).glob(f"*{MEASURED}")):
        emulated = load_chrome(path.with_name(path.name.removesuffix(MEASURED) + EMULATED))
        about = json.loads(path.read_text("utf-8"))["otherData"]
        found.append(Recording(about, load_chrome(path), emulated))
    return found


def listing(found: Sequence[Recording]) -> str:
    """Return a line for each recording, or what to do if there are none."""
    return "\n".join(map(str, found)) or (
        "No recording of a real GPU comes with this version; `make gpu-check` on a machine with "
        "one makes them."
    )
