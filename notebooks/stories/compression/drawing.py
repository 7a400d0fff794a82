"""Draw a comparison of codecs: lines that cross, and a table."""

from __future__ import annotations

from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course_utils.measure.picture import LOOKS
from course_utils.style import GREY, STYLE
from course_utils.words import duration
from notebooks.stories.formats import TABLE_STYLE

if TYPE_CHECKING:
    from notebooks.stories.compression.compression import CompressionTable

_RANGE = 10, 10_000  # MB/s: from Wi-Fi to a fast SSD
# stroke as well as colour tells the codecs apart
_STROKES = (
    ("-", LOOKS["read"].colour),
    ("--", "#d55e00"),
    (":", LOOKS["collate"].colour),
    ("-.", LOOKS["transfer"].colour),
)
_NOTE = (
    "Below its crossover a codec pays, above it does not. It is decoding speed × (1 − 1 / ratio) "
    "for one core that reads and then decodes; the more cores decode, the higher it lies. Times "
    "are those of emulated reading and of measured decoding."
)


def picture(table: CompressionTable) -> Figure:
    """Draw the time as a multiple of that of raw data over the bandwidth of the storage."""
    bandwidths = np.geomspace(*_RANGE, 100).tolist()
    codecs = [row for row in table.rows if row.name != "raw"]
    with plt.rc_context(STYLE):
        figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
        panel.axhline(1, color=GREY, linewidth=1)
        panel.annotate("raw", (_RANGE[0], 1), (4, 4), textcoords="offset points", color=GREY)
        for index, row in enumerate(codecs):
            stroke, colour = _STROKES[index % len(_STROKES)]
            label = f"{row.name}: up to {row.crossover_mb_s:,.0f} MB/s"
            costs = [row.cost_at(mb_s) for mb_s in bandwidths]
            panel.plot(bandwidths, costs, stroke, color=colour, label=label)
            for storage, mb_s in table.bandwidths.items():
                panel.plot(mb_s, table.ratio(row.name, storage), "o", color=colour)
        for storage, mb_s in table.bandwidths.items():
            panel.axvline(mb_s, color=GREY, linewidth=0.5)
            panel.text(mb_s, 1.01, storage, ha="center", transform=panel.get_xaxis_transform())
        panel.set(xscale="log", yscale="log", xlim=_RANGE)
        panel.set_xlabel("bandwidth of the storage in MB/s")
        panel.set_ylabel("times as long as raw data")
        panel.legend(frameon=False)
        figure.suptitle(_title(table), color=GREY, fontsize="small")
    plt.close(figure)  # a notebook shows what the cell returns, and only that
    return figure


def text(table: CompressionTable) -> str:
    """Return the table as lines of text."""
    rows = [_head(table), *_rows(table)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join([_title(table), *lines, *wrap(_NOTE, 100)])


def page(table: CompressionTable) -> str:
    """Return the table as HTML, which follows the colours around it."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in _head(table))
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in _rows(table)
    )
    return (
        f'<style>{TABLE_STYLE}</style><div class="cf"><p>{escape(_title(table))}</p><table><thead>'
        f'<tr>{head}</tr></thead><tbody>{body}</tbody></table><p class="soft">{_NOTE}</p></div>'
    )


def _title(table: CompressionTable) -> str:
    return f"{table.megabytes:,.1f} MB of pulses · {table.machine}"


def _head(table: CompressionTable) -> list[str]:
    return ["codec", "size", "decoding", "crossover", *table.bandwidths]


def _rows(table: CompressionTable) -> list[list[str]]:
    rows = []
    for row in table.rows:
        speeds = [f"{mb_s:,.0f} MB/s" for mb_s in (row.decode_mb_s, row.crossover_mb_s)]
        times = [
            f"{table.ratio(row.name, storage):.2f}× {duration(1e9 * seconds)}"
            for storage, seconds in row.seconds.items()
        ]
        plain = row.name == "raw"
        rows.append([row.name, f"{1 / row.ratio:.2f}×", *(["", ""] if plain else speeds), *times])
    return rows
