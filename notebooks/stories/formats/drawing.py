"""Draw a comparison of file formats: a picture of ratios, and a table for each storage."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from course_utils.loading.events import FORMATS
from course_utils.measure.picture import LOOKS
from course_utils.style import GREY, STYLE
from course_utils.words import duration
from notebooks.stories.formats.costs import COLD, PATTERNS, Cost

if TYPE_CHECKING:
    from notebooks.stories.formats.table import FormatTable

_SHORT = {"sequential": "in order", "random": "random", "one event": "one"}  # for nine columns
# shape as well as colour tells the three apart; each colour has 3:1 or more on white and on #111
_MARKS = {
    "sequential": ("s", LOOKS["read"].colour),
    "random": ("o", "#d55e00"),
    "one event": ("^", LOOKS["collate"].colour),
}

TABLE_STYLE = """
.cf{max-width:1100px;line-height:1.45;overflow-x:auto}.cf p{margin:.2em 0}
.cf table{border-collapse:collapse;margin:.3em 0;font-size:.92em}
.cf td,.cf th{text-align:right!important;padding:1px 7px 1px 0;font-weight:normal;background:none;
white-space:nowrap}.cf td:first-child,.cf th:first-child{text-align:left!important}
.cf tr{background:none!important}.cf thead tr:last-child th{border-bottom:1px solid #808080}
.cf th[colspan]{text-align:center!important}.cf .best{font-weight:bold}.cf .soft{opacity:.75}
.cf summary{cursor:pointer;font-weight:bold}
"""

_NOTE = (
    "Time is that of an open file; first comes how many times the best of its column it is. "
    "Requests are reads that reach the storage; opened files stand in brackets. Amplification is "
    "bytes read for each byte of pulses: all files are small here, so that to read too much costs "
    "little, and it tells what that would cost with large ones. On this disk both are counted "
    "without page cache, and a mapped npy reads pages of 4 KiB."
)

_NEVER_COLD = " This system cannot be asked to forget a file, so that nothing here is cold."


def picture(table: FormatTable) -> Figure:
    """Draw times as multiples of the best, the best format at the top, one panel per storage."""
    names, storages = table.names, table.storages
    height = range(len(names), 0, -1)
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            1,
            len(storages),
            figsize=(2.0 + 2.4 * len(storages), 1.6 + 0.3 * len(names)),
            sharey=True,
            layout="constrained",
            squeeze=False,
        )
        for panel, storage in zip(panels[0], storages, strict=True):
            for pattern, (marker, colour) in _MARKS.items():
                ratios = [table.ratio(name, storage, pattern) for name in names]
                panel.plot(ratios, height, marker, color=colour, label=pattern, alpha=0.9)
            panel.set_xscale("log")
            panel.set_title(storage, fontsize="medium")
            panel.grid(color=GREY, alpha=0.3, linewidth=0.5)
        panels[0, 0].set_yticks(height, [FORMATS[name].title for name in names])
        figure.supxlabel(
            "times as long as with the best format there", color=GREY, fontsize="medium"
        )
        figure.suptitle(f"{table.events:,} events · {table.machine}", color=GREY, fontsize="small")
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(),
            loc="outside lower right",
            ncols=3,
            frameon=False,
        )
    plt.close(figure)  # a notebook shows what the cell returns, and only that
    return figure


def text(table: FormatTable) -> str:
    """Return a table for each storage as lines of text."""
    kinds = " / ".join(PATTERNS)
    lines = [_title(table), *wrap(_note(table), 110), f"The figures in a row of three: {kinds}."]
    for storage in table.storages:
        rows = [["format", "size", "write", *PATTERNS, "requests", "amplification"]]
        for cells in _rows(table, storage):
            rows.append([*cells[:6], " / ".join(cells[6:9]), " / ".join(cells[9:])])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += ["", storage]
        for first, *others in rows:
            right = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
            lines.append("  ".join(["", first.ljust(widths[0]), *right]))
    return "\n".join(lines)


def page(table: FormatTable) -> str:
    """Return the tables as HTML, which follows the colours around it; the first is open."""
    kinds = "".join(f"<th>{_SHORT[pattern]}</th>" for pattern in PATTERNS) * 3
    head = (
        '<thead><tr><th></th><th></th><th></th><th colspan="3">time</th><th colspan="3">requests'
        '</th><th colspan="3">amplification</th></tr><tr><th>format</th><th>size</th><th>write</th>'
        f"{kinds}</tr></thead>"
    )
    parts = [
        f"<summary>{escape(storage)}</summary><table>{head}<tbody>"
        + "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in _rows(table, storage))
        + "</tbody></table></details>"
        for storage in table.storages
    ]
    return (
        f'<style>{TABLE_STYLE}</style><div class="cf"><p>{escape(_title(table))}</p>'
        f'<details open="">{"<details>".join(parts)}<p class="soft">{_note(table)}</p></div>'
    )


def _title(table: FormatTable) -> str:
    size = 16 * table.pulses / 1e6
    return f"{table.events:,} events, {size:,.1f} MB of pulses · {table.machine}"


def _note(table: FormatTable) -> str:
    return _NOTE if COLD in table.storages else _NOTE + _NEVER_COLD


def _rows(table: FormatTable, storage: str) -> Iterator[list[str]]:
    """Yield 12 cells for each format: name, size, writing, three times, and twice three counts."""
    for name in table.names:
        row = table.row(name)
        costs = [row.costs[storage, pattern] for pattern in PATTERNS]
        times = [
            f"{_times(table.ratio(name, storage, pattern))} {duration(1e9 * cost.seconds)}"
            for pattern, cost in zip(PATTERNS, costs, strict=True)
        ]
        size = f"{row.size / (16 * table.pulses):.2f}×"
        written = duration(1e9 * row.write_s)
        counts = [f"{cost.amplification:.3g}" for cost in costs]
        yield [FORMATS[name].title, size, written, *times, *map(_requests, costs), *counts]


def _cell(content: str) -> str:
    best = ' class="best"' if content.startswith("1× ") else ""
    return f"<td{best}>{escape(content)}</td>"


def _times(ratio: float) -> str:
    return "1×" if ratio == 1 else f"{ratio:.2g}×" if ratio < 10 else f"{ratio:,.0f}×"


def _requests(cost: Cost) -> str:
    opened = f" (+{cost.opens:,.0f})" if cost.opens else ""
    return f"{cost.requests:,.0f}{opened}"
