"""Kernel extension that replaces widgets by HTML that works without a kernel.

A timeline stays interactive. A prediction becomes its question and choices, and any other form
becomes one sentence. A plot becomes SVG in the colors of the page.
"""

from __future__ import annotations

import json
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from IPython.core.interactiveshell import InteractiveShell

from course_utils.teaching.notebook import Form, card, inline
from course_utils.teaching.notebook.prediction import Reveal
from keepfed.measure.picture import TimelineGrid, as_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORM = "The notebook shows a form here. It needs Python, so this page omits it."


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the replacements in `shell`."""
    bundles = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    bundles.for_type(TimelineGrid, _timeline)
    bundles.for_type(Form, _form)
    bundles.for_type(widgets.Widget, _form)
    bundles.for_type(Reveal, _measured)
    bundles.for_type_by_name("matplotlib.figure", "Figure", _plot)


def _timeline(grid: TimelineGrid, **_: object) -> dict[str, Any]:
    return _both(grid.to_fragment(module=False), as_text(grid.picture))


def _plot(figure: Figure, **_: object) -> dict[str, Any]:
    from docs.book.plots import alternative_text, as_html  # only where a notebook plots

    return _both(as_html(figure), alternative_text(figure))


def _form(form: widgets.Widget, **_: object) -> dict[str, Any]:
    if not (key := getattr(form, "key", "")):
        return _both(card("plain", FORM), FORM)
    title, (field, unit) = form.children[0], form.children[1].children
    choices = "".join(
        f'<li data-choice="{escape(choice)}">{inline(choice)}</li>'
        for choice in getattr(field, "options", ())
    )
    hint = f"<ul>{choices}</ul>" if choices else f' <span class="unit">({unit.value})</span>'
    html = f'<div class="question">{title.value}{hint if choices or unit.value else ""}</div>'
    return _both(_marked("asked", html, key=key, unit=unit.value), form.in_words)


def _measured(found: Reveal, **_: object) -> dict[str, Any]:
    """Return the measurement, and the card that static/guess.js fills in with a guess."""
    sentence = found.sentence.partition(". You made no prediction")[0].removesuffix(".")
    comparison = replace(found, predicted=found.measured)._repr_html_()
    html = f"{card('plain', f'{sentence}.')}<template>{comparison}</template>"
    measured = json.dumps(found.measured)
    return _both(_marked("revealed", html, key=found.key, measured=measured), f"{sentence}.")


def _marked(kind: str, html: str, **data: str) -> str:
    """Return HTML that static/guess.js recognizes as a question or a measurement."""
    given = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
    return f'<div class="{kind}"{given}>{html}</div>'


def _both(html: str, text: str) -> dict[str, Any]:
    return {"text/html": html, "text/plain": text}
