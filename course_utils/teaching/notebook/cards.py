"""Draw a small card below a cell, readable in light and dark mode, and in black and white."""

import re
from html import escape
from typing import Literal

from keepfed.palette import BAD, GOOD, GUESSED, MEASURED, NEUTRAL, TRACK

Tone = Literal["good", "bad", "open", "plain"]

# One line style per tone, so that the tone is visible without color.
_EDGE = {
    "good": f"6px solid {GOOD}",
    "bad": f"6px double {BAD}",
    "open": f"6px dotted {NEUTRAL}",
    "plain": f"6px solid {MEASURED}",
}


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


def block(text: str) -> str:
    """Return the HTML of captured output, with a scroll bar if it is long."""
    # JupyterLab wraps a <pre> in mid-word, which makes paths in tracebacks unreadable.
    words = "word-break:normal;overflow-wrap:anywhere"
    style = f"margin:6px 0 2px;max-height:18em;overflow:auto;white-space:pre-wrap;{words}"
    return f'<pre style="{style}">{escape(text)}</pre>'


def bar(name: str, share: float, label: str, *, guessed: bool, track: bool) -> str:
    """Return the HTML of a horizontal bar, hatched if it is a guess.

    Args:
        name: Text to the left of the bar.
        share: Length of the bar, from 0 to 1.
        label: Text to the right of the bar.
        guessed: Whether the value is a guess.
        track: Draw the full length too, for a share of a whole.
    """
    edge = GUESSED if guessed else MEASURED
    fill = f"repeating-linear-gradient(45deg,{edge} 0 2px,transparent 2px 6px)" if guessed else edge
    background = f";background:{TRACK}" if track else ""
    return (
        '<div style="display:flex;align-items:center;margin-top:4px">'
        f'<span style="width:8em">{escape(name)}</span>'
        f'<span style="flex:1;max-width:22em{background}">'
        f'<span style="display:block;box-sizing:border-box;height:14px;width:{share:.1%};'
        f'min-width:2px;border:1px solid {edge};background:{fill};print-color-adjust:exact">'
        f'</span></span><span style="margin-left:8px">{escape(label)}</span></div>'
    )
