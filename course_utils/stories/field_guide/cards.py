"""Show field guide entries: one entry as a card, or all entries as folded cards by topic."""

import re
from dataclasses import dataclass
from html import escape

from course_utils.teaching.notebook import block, card, inline
from keepfed.field_guide import ANY, TOPICS, Entry, entries

_SHORT = 4  # lines
_PAGE = "https://github.com/{}/issues/{}"


@dataclass(frozen=True)
class EntryRun:
    """An entry, and the output of its faulty and its fixed program."""

    entry: Entry
    before: str
    after: str

    def _repr_html_(self) -> str:
        before = _said("The faulty program prints", self.before, self.entry.prints)
        after = _said("The fixed program prints", self.after, self.entry.prints_fixed)
        return entry_card(self.entry, before + after)


class EntryList(list[Entry]):
    """Entries, shown as folded cards under the headings of their topics."""

    def _repr_html_(self) -> str:
        parts = []
        for topic, heading in TOPICS.items():
            mine = [entry for entry in self if entry.topic == topic]
            parts += [f"<h4>{escape(heading)}</h4>"] if mine else []
            parts += [_folded(inline(entry.title), entry_card(entry)) for entry in mine]
        return "".join(parts)


def pages() -> EntryList:
    """Return all entries."""
    return EntryList(entries().values())


def entry_card(entry: Entry, result: str = "") -> str:
    """Return the HTML of an entry, with its folded program and the output of a run."""
    where = ", ".join([f"notebook {entry.notebook}", *map(_link, entry.threads)])
    body = [
        block("\n".join(entry.messages)) if entry.messages else "",
        _line("Why", inline(entry.why)),
        _line("Fix", f"<ol>{''.join(f'<li>{inline(step)}</li>' for step in entry.fix)}</ol>"),
        _line("More", where),
        *_program(entry),
        result,
    ]
    return card("plain", entry.title, body="".join(body))


def _program(entry: Entry) -> list[str]:
    if not entry.program:
        return [_line("No program", inline(f"{entry.no_program}."))]
    folded = _folded("The program: faulty lines (-) and fixed lines (+)", block(entry.program))
    return [_line("Run it", f"<code>show({entry.name!r})</code>"), folded]


def _said(name: str, output: str, telling: str) -> str:
    """Return the output of a program, shortened to the revealing and the last line if long."""
    pattern = re.compile(".*".join(map(re.escape, telling.split(ANY))))
    lines = output.splitlines()
    told = [line for line in lines if pattern.search(line)]
    if len(lines) <= _SHORT or not told:
        return f"{name}:{block(output)}" if output else ""
    short = block("\n".join([told[-1], lines[-1]]))
    return f"{name}:{short}{_folded('Complete output', block(output))}"


def _line(name: str, html: str) -> str:
    return f'<div style="margin-top:4px"><b>{name}:</b> {html}</div>'


def _link(thread: str) -> str:
    repository, number = thread.split("#")
    # among widgets, JupyterLab removes the style of links
    seen = 'style="text-decoration: underline"'
    return f'<a {seen} href="{_PAGE.format(repository, number)}">{escape(thread)}</a>'


def _folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>{body}</details>"
