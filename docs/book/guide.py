"""Pages of the field guide, and a box that finds them by an error message."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path

from keepfed.field_guide import ANY, TOPICS, Entry, elsewhere, entries, table

FOLDER = "field_guide"
EXAMPLE = "DataLoader worker (pid 46794) is killed by signal: Bus error."
_THREAD = "[{0}#{1}](https://github.com/{0}/issues/{1})"
_BOX = (
    '<div class="look-up"><label>A message, the end of a log, or some words:<textarea rows="3">'
    f'{escape(EXAMPLE)}</textarea></label><ul aria-live="polite"></ul></div>'
)


def front_page() -> str:
    """Return the page with the box that searches the entries, and the list of all entries."""
    text = Path(__file__).with_name("field_guide.md").read_text("utf-8")
    box = f"```{{raw}} html\n{_BOX}\n```"
    return text.replace("{{ Box }}", box).replace("{{ Entries }}", contents())


def contents() -> str:
    """Return a list of all entries, grouped by topic."""
    blocks = []
    for topic, heading in TOPICS.items():
        mine = [entry.name for entry in entries().values() if entry.topic == topic]
        blocks.append("\n".join(["```{toctree}", f":caption: {heading}", "", *mine, "```"]))
    return "\n\n".join(blocks)


def entry_page(entry: Entry, notebooks: Mapping[str, str]) -> str:
    """Return the page of an entry. `notebooks` maps each number to the name of its page."""
    where = f"[notebook {entry.notebook}](../{notebooks[entry.notebook]}.ipynb)"
    threads = [_THREAD.format(*thread.split("#")) for thread in entry.threads]
    program = [
        "**The program:** faulty lines (-) and fixed lines (+)",
        f"```diff\n{entry.program.rstrip()}\n```",
        f"It needs {entry.needs}." if entry.needs else "",
        _printed("**The faulty program prints**", entry.prints),
        _printed("**The fixed program prints**", entry.prints_fixed),
    ]
    parts = [
        f"# {entry.title}",
        _printed("**Message**", "\n".join(entry.messages)),
        f"**Why:** {entry.why}",
        "**Fix:**\n\n" + "\n".join(f"{number}. {step}" for number, step in enumerate(entry.fix, 1)),
        f"**More:** {', '.join([where, *threads])}.",
        *(program if entry.program else [f"There is no program, because {entry.no_program}."]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def search_data() -> str:
    """Return all entries as a script for `look_up.js`."""
    fields = ("name", "topic", "title", "fix", "messages", "hints", "symptoms", "rank")
    rows = [*entries().values(), *elsewhere()]
    data = {
        "rows": [{name: getattr(row, name) for name in fields} for row in rows],
        "any": ANY,
        **table("words"),
        "patterns": table("log"),
    }
    return f"const FIELD_GUIDE = {json.dumps(data, ensure_ascii=False)};\n"


def _printed(what: str, text: str) -> str:
    return f"{what}\n\n```text\n{text.rstrip()}\n```" if text else ""
