"""The field guide in a notebook: its entries as cards, a box to search them, their programs run.

`show("unpicklable")` runs an entry as people write it and mended, each in a process that may break.
"""

import multiprocessing
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html import escape
from typing import Any

import torch
from ipywidgets import HTML, Button, Text, VBox

from course_utils.errors import CourseError
from course_utils.hardware.machine import usable_cores
from course_utils.teaching.field_guide import NOT_KNOWN, TOPICS, Entry, entries, look_up
from course_utils.teaching.notebook import block, card, run_demo

# Where an entry does not hang on the start method, it takes the one that is quick.
_QUICK = "fork" if sys.platform == "linux" else "spawn"
_MEMORY_MB = 4000
_PAGE = "https://github.com/{}/issues/{}"


@dataclass(frozen=True)
class Shown:
    """An entry, and what its program printed as people write it, and mended."""

    entry: Entry
    before: str
    after: str

    def _repr_html_(self) -> str:
        said = {"As people write it": self.before, "Mended": self.after}
        return _card(self.entry, "".join(f"{name}:{block(text)}" for name, text in said.items()))


class Pages(list[Entry]):
    """Entries, which draw themselves as folded cards below the headings of their topics."""

    def _repr_html_(self) -> str:
        parts = []
        for topic, heading in TOPICS.items():
            mine = [entry for entry in self if entry.topic == topic]
            parts += [f"<h4>{escape(heading)}</h4>"] if mine else []
            parts += [_folded(escape(entry.title), _card(entry)) for entry in mine]
        return "".join(parts)


class Search(VBox):  # type: ignore[misc]
    """A box for a message, or for some words, and the entries that it finds."""

    def __init__(self, text: str = ""):
        self.text = Text(
            text,
            description="It says:",
            placeholder="paste a message, or write some words, and press Enter",
            continuous_update=False,
            layout={"width": "46em", "max_width": "100%"},
        )
        self.found = VBox()
        self.text.observe(lambda change: self._look(change["new"]), "value")
        super().__init__([self.text, self.found])
        self._look(text)

    def _look(self, text: str) -> None:
        found = look_up(text) if text.strip() else []
        unknown = [HTML(card("open", "Not known", NOT_KNOWN))] if text.strip() else []
        self.found.children = [_Runnable(entry) for entry in found] or unknown


class _Runnable(VBox):  # type: ignore[misc]
    """A card, and a button that runs what it is about."""

    def __init__(self, entry: Entry):
        button, result = Button(description="Run both"), HTML(_card(entry))

        def run(_: Any) -> None:
            button.disabled, button.description = True, "Running"
            result.value = show(entry.name)._repr_html_()
            button.disabled, button.description = False, "Run again"

        button.on_click(run)
        super().__init__([result, button])


def pages() -> Pages:
    """Return all entries."""
    return Pages(entries().values())


def show(name: str) -> Shown:
    """Run an entry as people write it and mended, each in a process of its own.

    Raises:
        CourseError: there is no such entry.
    """
    if name not in entries():
        raise CourseError(f"There is no entry {name!r}; choose one of: {', '.join(entries())}.")
    entry = entries()[name]
    if why := lacking(entry):
        return Shown(entry, f"Not run here: {why}.", entry.seen or "Not run either.")
    return Shown(entry, _run(entry, entry.broken), _run(entry, entry.mended))


def lacking(entry: Entry) -> str:
    """Say why this machine cannot show an entry; or nothing."""
    methods = multiprocessing.get_all_start_methods()
    if entry.method and entry.method not in methods:
        return f"it is about {entry.method}, which this system does not have"
    is_met = {
        "": lambda: True,
        "a GPU": torch.cuda.is_available,
        "a machine without a GPU": lambda: not torch.accelerator.is_available(),
        "Linux": lambda: sys.platform == "linux",
        "two cores": lambda: usable_cores() > 1,
        "a room of its own": _has_rooms,
    }
    return "" if is_met[entry.needs]() else f"it needs {entry.needs}"


def _has_rooms() -> bool:
    """Tell whether anybody may mount something that others do not see."""
    tried = shutil.which("unshare") and subprocess.run(["unshare", "-Urm", "true"], check=False)
    return bool(tried and tried.returncode == 0)


def _run(entry: Entry, program: str) -> str:
    method = entry.method or _QUICK
    start = f"import multiprocessing; multiprocessing.set_start_method({method!r}, force=True); "
    demo = run_demo(start + program, seconds=entry.seconds, memory_mb=_MEMORY_MB)
    return f"{demo.output}\n[{demo.ending}]".strip()


def _card(entry: Entry, result: str = "") -> str:
    says = block("\n".join(entry.says)) if entry.says else ""
    where = ", ".join([f"notebook {entry.notebook}", *map(_link, entry.threads)])
    more = f'<div style="margin-top:2px"><b>More:</b> {where}</div>'
    body = f"{says}{more}{_folded('Program', block(entry.program))}{result}"
    return card("plain", entry.title, f"Why: {entry.why}", f"Do: {entry.do}", body=body)


def _link(thread: str) -> str:
    repository, number = thread.split("#")
    return f'<a href="{_PAGE.format(repository, number)}">{escape(thread)}</a>'


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>{body}</details>"
