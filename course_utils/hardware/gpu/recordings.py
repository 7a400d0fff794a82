"""Read the recordings of real GPUs that are shipped with the course.

Each recording has two traces of the same loop: one on a real GPU, and one on an emulated device
with the times measured there. `make gpu-check` creates them.
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

MEASURED, EMULATED = "-measured.json", "-emulated.json"  # endings of the files of a recording


@dataclass(frozen=True)
class Recording:
    """One training loop on a real GPU and on its emulated counterpart."""

    about: Mapping[str, Any]  # loop, GPU, date, command
    measured: Trace
    emulated: Trace

    def timeline(self) -> TimelineGrid:
        """Return both traces in one timeline with a common time axis."""
        from keepfed.measure.picture import Picture, TimelineGrid

        names = [f"measured, {self.about['gpu']}", "emulated"]
        return TimelineGrid([], {"": Picture([self.measured, self.emulated], names)})

    def __str__(self) -> str:
        """Return the loop, where and when it was recorded, and both utilizations."""
        measured, emulated = (t.summary().utilization for t in (self.measured, self.emulated))
        return (
            f"{self.about['loop']['name']}: GPU busy {percent(measured)} measured, "
            f"{percent(emulated)} emulated, {100 * abs(measured - emulated):.1f} points apart "
            f"({', '.join(self.about[name] for name in ('gpu', 'date', 'command'))})"
        )


def recordings(folder: Path | None = None) -> list[Recording]:
    """Return the recordings that `tests/gpu/run.py` wrote to a folder, sorted by name."""
    recorded = []
    for path in sorted((folder or shipped("notebooks/recordings")).glob(f"*{MEASURED}")):
        emulated = load_chrome(path.with_name(path.name.removesuffix(MEASURED) + EMULATED))
        about = json.loads(path.read_text("utf-8"))["otherData"]
        recorded.append(Recording(about, load_chrome(path), emulated))
    return recorded


def listing(recorded: Sequence[Recording]) -> str:
    """Return one line per recording, or instructions if there are none."""
    return "\n".join(map(str, recorded)) or (
        "This version contains no recording of a real GPU. Run `make gpu-check` on a machine with "
        "a GPU to create some."
    )
