"""The report of a rescue, as a form: hypothesis, evidence, change and effect of each change.

Every keystroke saves the report next to the notebook, as JSON and as a page to hand in.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from course_utils.paths import scratch_folder
from course_utils.stories.capstone.result import results
from course_utils.teaching.notebook import Form, card
from keepfed.errors import sentence
from keepfed.files import replace_file
from keepfed.formatting import plural

PAGE = "capstone_report.md"
QUESTIONS = {
    "hypothesis": "What costs the most time, and why do you think so?",
    "evidence": "What did you count or measure, before you changed anything?",
    "change": "What did you change? One thing at a time.",
    "effect": "What did you measure afterwards? Are the samples still the same?",
}
_MEASURED = ("evidence", "effect")
_FILE = "capstone_report.json"
_SHOWN = 5  # latest checks

Change = dict[str, str]  # answer to each question


def write_report() -> Form:
    """Return the form of the report with the answers so far. It saves every keystroke."""
    changes = _load() or [dict.fromkeys(QUESTIONS, "")]
    status, rows, add = widgets.HTML(), widgets.VBox(), widgets.Button(description="Another change")
    add.tooltip = "Add four empty fields"

    def keep() -> None:
        try:
            _store(changes)
            status.value = card("plain", *_status(changes))
        except OSError as error:
            status.value = card("bad", "Not saved", sentence(error))

    def answer(change: Change, part: str, typed: dict[str, Any]) -> None:
        change[part] = typed["new"]
        keep()

    def show(number: int, change: Change) -> None:
        """Add four fields, with unique names for screen readers."""
        fields = []
        for part, question in QUESTIONS.items():
            field = widgets.Textarea(
                value=change[part],
                description=f"{part.capitalize()} {number}",
                placeholder=question,
                rows=2,
                style={"description_width": "8em"},
                layout={"width": "auto"},
            )
            field.observe(partial(answer, change, part), "value")
            fields.append(field)
        rows.children += (widgets.VBox(fields, layout={"margin": "0 0 12px"}),)

    def another(_: object) -> None:
        changes.append(dict.fromkeys(QUESTIONS, ""))
        show(len(changes), changes[-1])
        keep()

    for number, change in enumerate(changes, 1):
        show(number, change)
    add.on_click(another)
    status.value = card("plain", *_status(changes))
    if _written(changes):
        keep()  # adds the checks that were run since
    latest = [f"{one.when[11:16]}, seed {one.seed}: {one}" for one in results()[-_SHOWN:]]
    checks = card(
        "plain", "Your latest checks", *(latest or ["There are none yet. Run the check above."])
    )
    form = Form([widgets.HTML(checks), rows, add, status])
    form.in_words = _page(changes)
    return form


def _status(changes: list[Change]) -> tuple[str, str, str]:
    """Return the text of the card: progress, the first missing part, and the file."""
    written = _written(changes)
    if not written:
        return "Report: empty", "Describe one change that you made.", ""
    lacks = {number: _lack(number, change) for number, change in written}
    done = sum(not lack for lack in lacks.values())
    first = next(filter(None, lacks.values()), "Nothing is missing.")
    count = f"Report: {plural(len(written), 'change')}, {done} complete"
    return count, first, f"The report is saved next to this notebook. Hand in `{PAGE}`."


def _lack(number: int, change: Change) -> str:
    """Return what a change lacks first, or ""."""
    for part, question in QUESTIONS.items():
        if not change[part].strip():
            return f"{part.capitalize()} {number} is missing. {question}"
        if part in _MEASURED and not re.search(r"\d", change[part]):
            return f"{part.capitalize()} {number} contains no number. {question}"
    return ""


def _written(changes: list[Change]) -> list[tuple[int, Change]]:
    """Return the changes that are not empty, with their numbers in the form."""
    numbered = enumerate(changes, 1)
    return [(n, change) for n, change in numbered if any(map(str.strip, change.values()))]


def _page(changes: list[Change]) -> str:
    """Return the report as Markdown, with the latest results."""
    lines = ["# Rescue of a training run: report", ""]
    for number, change in _written(changes):
        lines += [f"## Change {number}", ""]
        for part in QUESTIONS:
            lines += [f"**{part.capitalize()}.** {change[part].strip() or '(missing)'}", ""]
    checks = [f"- {one.when}, seed {one.seed}: {one}" for one in results()]
    lines += ["## Checks", "", *(checks or ["None yet."])]
    return "\n".join(lines).rstrip() + "\n"


def _load() -> list[Change]:
    path = scratch_folder() / _FILE
    try:
        kept = json.loads(path.read_text("utf-8"))["changes"]
        return [{part: str(change[part]) for part in QUESTIONS} for change in kept]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError):
        path.replace(path.with_suffix(".damaged"))  # a damaged file must not block the notebook
        return []


def _store(changes: list[Change]) -> None:
    folder = scratch_folder()
    text = json.dumps({"changes": changes}, indent=1, ensure_ascii=False)
    replace_file(folder / _FILE, text + "\n")
    if folder.parent == Path.cwd():  # otherwise the folder of the notebook is read-only
        replace_file(folder.parent / PAGE, _page(changes))
