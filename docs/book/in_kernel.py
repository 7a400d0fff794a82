"""Show what a notebook shows, without a kernel behind it: loaded into the kernel that runs it.

A timeline becomes one that still toggles in a page, a prediction its question and its choices, and
a form, which no page can answer, one sentence.
"""

from __future__ import annotations

from typing import Any

import ipywidgets as widgets
from IPython.core.interactiveshell import InteractiveShell

from course_utils.teaching.notebook import Form, card, inline
from course_utils.teaching.notebook.prediction import Reveal
from keepfed.measure.picture import TimelineGrid, as_text

FORM = "Here the notebook shows a form. It needs Python behind it, so this page leaves it out."


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Let `shell` show each of these as what a page can hold."""
    bundles = shell.display_formatter.mimebundle_formatter  # type: ignore[union-attr]
    bundles.for_type(TimelineGrid, _timeline)
    bundles.for_type(Form, _form)
    bundles.for_type(widgets.Widget, _form)
    bundles.for_type(Reveal, _measured)


def _timeline(grid: TimelineGrid, **_: object) -> dict[str, Any]:
    return _both(grid.to_fragment(module=False), as_text(grid.picture))


def _form(form: widgets.Widget, **_: object) -> dict[str, Any]:
    asked = getattr(form, "in_words", "")
    if not asked.startswith("Predict: "):
        return _both(card("plain", FORM), FORM)
    title, (field, unit) = form.children[0], form.children[1].children
    choices = "".join(f"<li>{inline(choice)}</li>" for choice in getattr(field, "options", ()))
    hint = f"<ul>{choices}</ul>" if choices else f" ({unit.value})" if unit.value else ""
    return _both(f'<div class="question">{title.value}{hint}</div>', asked)


def _measured(found: Reveal, **_: object) -> dict[str, Any]:
    """Say what was measured; nobody has guessed."""
    sentence = found.sentence.partition(". You made no guess")[0]
    return _both(card("plain", f"{sentence}."), f"{sentence}.")


def _both(html: str, text: str) -> dict[str, Any]:
    return {"text/html": html, "text/plain": text}
