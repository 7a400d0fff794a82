"""How a comparison shows itself: as a picture and as HTML."""

from collections.abc import Mapping, Sequence
from html import escape

from matplotlib.figure import Figure

from course_utils.measure.picture import LOOKS
from notebooks.stories.figures import drawing, value_bars

# each has a contrast of 3:1 or more on white and on #111; markers or strokes tell them apart too
COLOURS = (*(LOOKS[stage].colour for stage in ("read", "collate", "transfer")), "#d55e00")

Cells = Sequence[str]

_CSS = """
.cf{max-width:1100px;line-height:1.45;overflow-x:auto}.cf p{margin:.2em 0}
.cf table{border-collapse:collapse;margin:.3em 0;font-size:.92em}
.cf td,.cf th{text-align:right!important;padding:1px 7px 1px 0;font-weight:normal;background:none;
white-space:nowrap}.cf td:first-child,.cf th:first-child{text-align:left!important}
.cf tr{background:none!important}.cf thead tr:last-child th{border-bottom:1px solid #808080}
.cf th[colspan]{text-align:center!important}.cf .best{font-weight:bold}.cf .soft{opacity:.75}
.cf summary{cursor:pointer;font-weight:bold}
"""


def table(head: Cells, rows: Sequence[Cells], groups: Sequence[tuple[str, int]] = ()) -> str:
    """Return a table as HTML; `groups` name neighbouring columns, cells of "1× ..." are bold."""
    over = "".join(
        f'<th colspan="{span}">{name}</th>' if span > 1 else f"<th>{name}</th>"
        for name, span in groups
    )
    heads = [over] * bool(groups) + ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    body = ("".join(map(_cell, row)) for row in rows)
    return (
        f"<table><thead>{''.join(map(_row, heads))}</thead>"
        f"<tbody>{''.join(map(_row, body))}</tbody></table>"
    )


def page(title: str, body: str, note: str) -> str:
    """Return a block of HTML that follows the colours around it."""
    return (
        f'<style>{_CSS}</style><div class="cf"><p>{escape(title)}</p>{body}'
        f'<p class="soft">{note}</p></div>'
    )


def _row(cells: str) -> str:
    return f"<tr>{cells}</tr>"


def _cell(content: str) -> str:
    best = ' class="best"' if content.startswith("1× ") else ""
    return f"<td{best}>{escape(content)}</td>"


def draw_ladder(rates: Mapping[str, float]) -> Figure:
    """Draw how many times as fast as the first each loader is, one below the other.

    Args:
        rates: events/s by the name of the loader.
    """
    slowest = next(iter(rates.values()))
    ratios = {name: rate / slowest for name, rate in rates.items()}
    with drawing(7, 0.8 + 0.35 * len(rates)) as (figure, (panel,)):
        value_bars(panel, ratios, "{:,.0f}".format, color=COLOURS[0])
        panel.set(xscale="log", xlim=(0.7, 5 * max(ratios.values())))
        panel.set_xlabel(f"times as many events/s as {next(iter(rates))}")
    return figure
