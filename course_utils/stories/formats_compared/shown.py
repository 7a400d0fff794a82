"""Colours and HTML tables of the comparisons."""

from collections.abc import Iterable, Sequence
from html import escape

from keepfed.palette import SERIES

COLOURS = SERIES[:4]  # markers or line styles differ too

Cells = Sequence[str]


def table(head: Cells, rows: Iterable[Cells]) -> str:
    """Return an unstyled HTML table with bold cells for values that start with "1× "."""
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    lines += ["".join(map(_cell, row)) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell(content: str) -> str:
    best = ";font-weight:bold" * content.startswith("1× ")
    return f'<td style="white-space:nowrap{best}">{escape(content)}</td>'


def page(title: str, body: str, note: str) -> str:
    """Return an HTML block that scrolls if it is too wide."""
    return f'<div style="overflow-x:auto"><p>{escape(title)}</p>{body}<p>{note}</p></div>'
