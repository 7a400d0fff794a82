"""Draw a small card below a cell, readable in light and dark mode, and in black and white."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from keepfed.palette import BAD, GOOD, GUESSED, MEASURED, NEUTRAL, TRACK

Tone = Literal["good", "bad", "open", "plain"]

# One line style per tone, so that the tone is visible without colour.
_EDGE = {
    "good": f"6px solid {GOOD}",
    "bad": f"6px double {BAD}",
    "open": f"6px dotted {NEUTRAL}",
    "plain": f"6px solid {MEASURED}",
}


@dataclass(frozen=True)
class Bar:
    """One bar of a small bar chart."""

    name: str
    value: float
    label: str
    guessed: bool = False


def card(tone: Tone, title: str, *lines: str, body: str = "") -> str:
    """Return the HTML of a card: a title, sentences, and an HTML body."""
    sentences = "".join(f'<div style="margin-top:2px">{inline(s)}</div>' for s in lines if s)
    return (
        f'<div role="status" style="border-left:{_EDGE[tone]};padding:4px 12px;margin:4px 0;'
        f'max-width:46em;line-height:1.45"><b>{inline(title)}</b>{sentences}{body}</div>'
    )


def inline(sentence: str) -> str:
    """Return a sentence as HTML, with text in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(sentence))


def bars(rows: Sequence[Bar], whole: float = 0) -> str:
    """Return the HTML of horizontal bars from zero. Guesses are hatched.

    Args:
        rows: The bars.
        whole: Value of the full length, such as 100 for percentages, drawn as a track. By default,
            the longest bar has the full length.
    """
    longest = max([whole, *(abs(row.value) for row in rows)]) or 1
    track = f";background:{TRACK}" if whole else ""
    return "".join(_bar(row, abs(row.value) / longest, track) for row in rows)


def block(text: str) -> str:
    """Return the HTML of captured output, with a scroll bar if it is long."""
    # JupyterLab wraps a <pre> in mid-word, which makes paths in tracebacks unreadable.
    words = "word-break:normal;overflow-wrap:anywhere"
    style = f"margin:6px 0 2px;max-height:18em;overflow:auto;white-space:pre-wrap;{words}"
    return f'<pre style="{style}">{escape(text)}</pre>'


def _bar(row: Bar, share: float, track: str) -> str:
    edge = GUESSED if row.guessed else MEASURED
    hatch = f"repeating-linear-gradient(45deg,{edge} 0 2px,transparent 2px 6px)"
    fill = hatch if row.guessed else edge
    return (
        '<div style="display:flex;align-items:center;margin-top:4px">'
        f'<span style="width:8em">{escape(row.name)}</span>'
        f'<span style="flex:1;max-width:22em{track}">'
        f'<span style="display:block;box-sizing:border-box;height:14px;width:{share:.1%};'
        f'min-width:2px;border:1px solid {edge};background:{fill};print-color-adjust:exact">'
        f'</span></span><span style="margin-left:8px">{escape(row.label)}</span></div>'
    )
