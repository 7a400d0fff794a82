"""Compare loaders: measurements from this machine, our recordings, and the samples served."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from course_utils.paths import recording
from course_utils.stories.figures import drawing
from course_utils.stories.peers.environment import home
from course_utils.stories.peers.measure import Measurement, measure
from course_utils.stories.peers.tables import TABLES
from keepfed.files import replace_file

Found = Mapping[str, Measurement]
_STORED = "measured.json"


@dataclass(frozen=True)
class Comparison:
    """Results of one task for all loaders, measured here and recorded elsewhere."""

    title: str
    here: Found
    recorded: Found
    where: str  # machine and date of the recording
    sample_bytes: int = 0  # 0: sizes differ

    @property
    def spread(self) -> float:
        """Ratio of the highest and the lowest rate measured here."""
        rates = [one.rate for one in self.here.values()]
        return max(rates) / min(rates)

    def picture(self) -> Figure:
        """Draw the rates on logarithmic axes, the slowest on top."""
        names = [one.name for one in self._rows()]
        with drawing(8, 1.3 + 0.27 * len(names)) as (figure, (panel,)):
            for found, label, fill in (
                (self.recorded, f"recorded: {self.where}", "none"),
                (self.here, "here", "full"),
            ):
                if not found:
                    continue
                mine = [name for name in names if name in found]
                rates = [found[name].rate for name in mine]
                rows = [names.index(name) for name in mine]
                panel.plot(rates, rows, "o", label=label, fillstyle=fill)
            panel.set(xscale="log", xlabel="samples/s (log)", title=self.title)
            panel.set_yticks(range(len(names)), names)
            if mb := self.sample_bytes / 1e6:
                both = (lambda rate: rate * mb), (lambda rate: rate / mb)
                panel.secondary_xaxis("top", functions=both).set_xlabel("MB/s")
            panel.invert_yaxis()
            figure.legend(loc="outside lower center", ncols=2)
        return figure

    def _rows(self) -> list[Measurement]:
        """Return the newest result of each loader, in the order of the recorded rates."""
        order = {**self.here, **self.recorded}
        rows = {**self.recorded, **self.here}.values()
        return sorted(rows, key=lambda one: order[one.name].rate)

    def _columns(self) -> dict[str, list[str]]:
        """Return the cells of each column by name, without empty columns."""
        rows, mb = self._rows(), self.sample_bytes / 1e6
        here, there = (
            [found.get(one.name) for one in rows] for found in (self.here, self.recorded)
        )
        columns = {
            "loader": [one.name for one in rows],
            "here": [f"{one.rate:,.0f}" if one else "" for one in here],
            "recorded": [f"{one.rate:,.0f}" if one else "" for one in there],
            "MB/s": [f"{one.rate * mb:,.0f}" if mb else "" for one in rows],
            "uses": [one.uses for one in rows],
            "cores": [f"{one.cores:.1f}" for one in rows],
            "served": [f"{one.books.served:,}" for one in rows],
            "distinct": [f"{one.books.distinct:,}" for one in rows],
            "neighbors": [f"{one.books.neighbors:.1f}" for one in rows],
            "first batch": [f"{1e3 * one.first_s:,.0f} ms" for one in rows],
            "pixels": ["" if one.pixels is None else f"{one.pixels:.2f}" for one in rows],
        }
        return {
            name: [cell or "–" for cell in cells] for name, cells in columns.items() if any(cells)
        }

    def __repr__(self) -> str:
        """Return the table in Markdown."""
        columns = self._columns()
        rows = [[*columns], [":--", *["--:"] * (len(columns) - 1)]]
        rows += map(list, zip(*columns.values(), strict=True))
        said = f"The columns “here” and “recorded” are samples/s. Recorded on {self.where}."
        if self.here:
            said += " If “here” has a number, the other columns were measured here too."
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        return f"**{self.title}**\n\n{said}\n\n{table}"

    _repr_markdown_ = __repr__


def compare(task: str) -> Comparison:
    """Measure the installed loaders, and compare them with stored results and recordings."""
    kept = [Measurement.from_row(row) for row in _stored().get(task, {}).values()]
    here = {one.name: one for one in [*kept, *_measure_all(task)]}
    return replace(recorded(task), here=here, sample_bytes=TABLES[task].sample_bytes)


def recorded(table: str) -> Comparison:
    """Return a recorded table of `make peers`, for example "small", "large" or "events"."""
    kept = json.loads(recording("peers.json").read_text("utf-8"))
    rows = [Measurement.from_row(row) for row in kept[table]]
    where = f"{kept['machine']}, {kept['date']}"
    return Comparison(kept["titles"][table], {}, {one.name: one for one in rows}, where)


def _measure_all(task: str) -> Iterator[Measurement]:
    """Measure all loaders that the course installs, one at a time."""
    for name, peer in TABLES[task].peers.items():
        if peer.needs is None:
            yield measure(name, TABLES[task])


def store(task: str, one: Measurement) -> None:
    """Store a measurement from a separate environment for the next comparison."""
    kept = _stored()
    kept.setdefault(task, {})[one.name] = one.row()
    replace_file(home() / _STORED, json.dumps(kept, indent=1))


def _stored() -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with suppress(OSError, ValueError):
        found = json.loads((home() / _STORED).read_text("utf-8"))
    return found
