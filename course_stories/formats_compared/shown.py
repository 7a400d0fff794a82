"""How a comparison shows itself: its colours, and its tables as HTML."""

from collections.abc import Iterable, Sequence
from html import escape

from keepfed.measure.picture import LOOKS

# each has a contrast of 3:1 or more on white and on #111; markers or strokes tell them apart too
COLOURS = (*(LOOKS[stage].colour for stage in ("read", "collate", "transfer")), "#d55e00")

Cells = Sequence[str]


def table(head: Cells, rows: Iterable[Cells]) -> str:
    """Return a table as HTML, which the page around it styles; cells of "1× ..." are bold."""
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(map(_cell, row)) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(content: str) -> str:
    best = ";font-weight:bold" * content.startswith("1× ")
    return f'<td style="white-space:nowrap{best}">{escape(content)}</td>'


def page(title: str, body: str, note: str) -> str:
    """Return a block of HTML that scrolls if it is wide."""
    return f'<div style="overflow-x:auto"><p>{escape(title)}</p>{body}<p>{note}</p></div>'
