"""Set loaders side by side: what they did here, what we recorded, and the books of both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from course_utils.paths import recording, replace_file
from course_utils.teaching.notebook import card
from course_utils.words import size
from notebooks.stories.figures import drawing
from notebooks.stories.peers.environment import HOME
from notebooks.stories.peers.libraries import ALL
from notebooks.stories.peers.measure import TASKS, Measured, measure

Found = Mapping[str, Measured]
_KEPT = "measured.json"
_HEAD = (
    "loader",
    "here",
    "recorded",
    "MB/s",
    "cores",
    "served",
    "distinct",
    "neighbours",
    "first batch",
)


@dataclass(frozen=True)
class Comparison:
    """The same task for all: what was measured here, and what somewhere else."""

    task: str
    here: Found
    recorded: Found
    where: str  # the recording is from

    @property
    def spread(self) -> float:
        """How many times the rate of the slowest the fastest has, of those measured here."""
        rates = [one.rate for one in self.here.values()]
        return max(rates) / min(rates)

    def picture(self) -> Figure:
        """Draw the rates, slow ones on top; the axes are logarithmic."""
        names = [one.name for one in self._rows()]
        with drawing(8, 1.3 + 0.27 * len(names)) as (figure, (panel,)):
            for found, label, fill in (
                (self.recorded, f"recorded: {self.where}", "none"),
                (self.here, "here", "full"),
            ):
                mine = [name for name in names if name in found]
                rates = [found[name].rate for name in mine]
                rows = [names.index(name) for name in mine]
                panel.plot(rates, rows, "o", label=label, fillstyle=fill)
            panel.set(xscale="log", xlabel="samples/s", title=self._title())
            panel.set_yticks(range(len(names)), names)
            to_mb, back = (lambda rate: rate * self._megabytes), (lambda mb: mb / self._megabytes)
            panel.secondary_xaxis("top", functions=(to_mb, back)).set_xlabel("MB/s")
            panel.invert_yaxis()
            figure.legend(loc="outside lower center", ncols=2)
        return figure

    @property
    def _megabytes(self) -> float:
        return TASKS[self.task].sample_bytes / 1e6

    def _rows(self) -> list[Measured]:
        """Return the newest of each, in the order of the recording."""
        order = {**self.here, **self.recorded}
        rows = {**self.recorded, **self.here}.values()
        return sorted(rows, key=lambda one: order[one.name].rate)

    def _title(self) -> str:
        task = TASKS[self.task]
        return f"samples of {size(task.sample_bytes)}, batches of {task.batch_size}"

    def _cells(self) -> Iterator[tuple[str, ...]]:
        for one in self._rows():
            rates = (found.get(one.name) for found in (self.here, self.recorded))
            books = one.books
            yield (
                one.name,
                *(f"{rate.rate:,.0f}" if rate else "–" for rate in rates),
                f"{one.rate * self._megabytes:,.0f}",
                f"{one.cores:.1f}",
                f"{books.served:,}",
                f"{books.distinct:,}",
                f"{books.neighbours:.1f}",
                f"{1e3 * one.first_s:,.0f} ms",
            )

    def __repr__(self) -> str:
        """Say it in columns."""
        rows = [_HEAD, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(map(str.rjust, row, widths)) for row in rows)
        return "\n".join([self._title(), *lines, f"recorded: {self.where}"])

    def _repr_html_(self) -> str:
        head = "".join(f"<th scope='col'>{name}</th>" for name in _HEAD)
        rows = "".join(
            f"<tr><th scope='row' style='text-align:left;white-space:nowrap'>{escape(name)}</th>"
            + "".join(f"<td style='white-space:nowrap'>{cell}</td>" for cell in cells)
            + "</tr>"
            for name, *cells in self._cells()
        )
        body = f"<table><tr>{head}</tr>{rows}</table>"
        said = f"Recorded: {self.where}. The columns after that are measured here, if they can be."
        return card("plain", self._title(), said, body=body)


def compare(task: str, home: Path = HOME) -> Comparison:
    """Measure what the course has; set it beside what was measured in `home`, and recorded."""
    kept = [Measured.from_row(row) for row in _kept(home).get(task, {}).values()]
    here = {one.name: one for one in [*kept, *measure_all(task)]}
    where, found = recorded(task)
    return Comparison(task, here, found, where)


def recorded(task: str) -> tuple[str, Found]:
    """Return where and when somebody measured all of them, and what they found."""
    kept = json.loads(recording("peers.json").read_text("utf-8"))
    rows = [Measured.from_row(row) for row in kept[task]]
    where = f"{kept['machine']}, {kept['date']}"
    return where, {one.name: one for one in rows}


def measure_all(task: str) -> Iterator[Measured]:
    """Measure, one after the other, all that the course has installed."""
    for name, peer in ALL.items():
        if peer.needs is None:
            yield measure(name, peer, TASKS[task])


def keep(task: str, one: Measured, home: Path) -> None:
    """Keep what was measured in an environment of its own, for the next comparison."""
    kept = _kept(home)
    kept.setdefault(task, {})[one.name] = one.row()
    replace_file(home / _KEPT, json.dumps(kept, indent=1))


def _kept(home: Path) -> dict[str, dict[str, dict[str, Any]]]:
    try:
        found: dict[str, dict[str, dict[str, Any]]] = json.loads((home / _KEPT).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found
