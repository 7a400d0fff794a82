"""Recordings of real GPUs, each beside an emulated device with the times measured there.

    for recording in recordings():
        print(recording.compare())
        display(recording.timeline())

`make gpu-check` makes them, on a machine with a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils.measure.exchange.chrome import load_chrome
from course_utils.measure.trace import Trace
from course_utils.paths import REPO
from course_utils.words import percent

if TYPE_CHECKING:
    from course_utils.measure.picture import Timeline

NONE = (
    "No recording of a real GPU comes with this version; `make gpu-check` on a machine with one "
    "makes them."
)
MEASURED, EMULATED = "-measured.json", "-emulated.json"


@dataclass(frozen=True)
class Comparison:
    """Shares of the time in which a step was computing."""

    measured: float
    emulated: float

    @property
    def apart(self) -> float:
        """How far the two are apart: 0.01 is a point."""
        return abs(self.measured - self.emulated)

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"GPU busy {percent(self.measured)} measured, {percent(self.emulated)} emulated, "
            f"{100 * self.apart:.1f} points apart"
        )


@dataclass(frozen=True)
class Recording:
    """One training loop on a real GPU and on its emulated twin."""

    loop: str
    gpu: str
    date: str
    command: str
    measured: Trace
    emulated: Trace

    def compare(self) -> Comparison:
        """Return how busy the two devices were."""
        shares = (trace.summary().utilisation for trace in (self.measured, self.emulated))
        return Comparison(*shares)

    def timeline(self) -> Timeline:
        """Return both in one picture, on one time axis."""
        from course_utils.measure.picture import Timeline

        named = {f"measured, {self.gpu}": self.measured, "emulated": self.emulated}
        return Timeline(named, compare=True)

    def __str__(self) -> str:
        """Say what was recorded, where and when."""
        return f"{self.loop}: {self.compare()} ({self.gpu}, {self.date}, {self.command})"


def recordings(folder: str | Path | None = None) -> list[Recording]:
    """Return the recordings in `folder`, by name; default: those that come with the course.

    Raises:
        ValueError: if a file is no recording of `tests/gpu/run.py`.
    """
    place = REPO / "recordings" if folder is None else Path(folder)
    pairs = [
        (measured, measured.with_name(measured.name.removesuffix(MEASURED) + EMULATED))
        for measured in sorted(place.glob(f"*{MEASURED}"))
    ]
    return [_read(measured, emulated) for measured, emulated in pairs if emulated.is_file()]


def listing(found: Sequence[Recording]) -> str:
    """Return a line for each recording, or what to do if there are none."""
    return "\n".join(map(str, found)) or NONE


def _read(measured: Path, emulated: Path) -> Recording:
    traces = load_chrome(measured), load_chrome(emulated)
    about = json.loads(measured.read_text("utf-8")).get("otherData", {})
    try:
        gpu, date, command = (about[name] for name in ("gpu", "date", "command"))
        return Recording(about["loop"]["name"], gpu, date, command, *traces)
    except KeyError as missing:
        raise ValueError(
            f"{measured} does not say its {missing.args[0]}; record it again with make gpu-check."
        ) from None
    except TypeError:
        raise ValueError(
            f"{measured} does not name its loop as a recording does; record it again with "
            "make gpu-check."
        ) from None
