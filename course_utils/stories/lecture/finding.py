"""The result of a lecture demo: a sentence, a table and traces, stored as JSON or as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from keepfed.files import replace_file
from keepfed.measure.exchange import trace_of
from keepfed.measure.picture import Timeline, columns
from keepfed.measure.spans import STAGES, Span, SpanLog
from keepfed.palette import DARK, LIGHT

TICK_NS = 1_000  # resolution of the times in a file
Table = Sequence[Sequence[str]]

_STYLE = f"""<style>
body{{font:22px/1.4 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;color:{LIGHT.fg}}}
h1{{font-size:34px;margin:0}}table{{border-collapse:collapse;margin:.6em 0}}p{{max-width:60em}}
@media(min-width:1200px){{body>div{{zoom:1.2}}}}@media(min-width:1700px){{body>div{{zoom:1.7}}}}
td{{padding:.1em 1.2em .1em 0;border-bottom:1px solid gray}}tr:first-child{{font-weight:600}}
body>div{{--used-lanes:1}}.foot{{font-size:16px;opacity:.8}}summary{{cursor:pointer}}
@media(prefers-color-scheme:dark){{body{{color:{DARK.fg}}}}}</style>"""


@dataclass(frozen=True)
class Finding:
    """The result of a demo, and the machine, date and command of the measurement."""

    sentence: str
    traces: Mapping[str, SpanLog]
    table: Table = ()  # the first row names the columns
    about: Mapping[str, Any] = field(default_factory=dict)  # machine (with date), command, ...

    def timeline(self) -> Timeline:
        """Return a timeline that switches between the traces, and shows the first one."""
        picture = Timeline(self.traces)
        picture.state = {"show": next(iter(self.traces))}
        return picture

    def page(self, title: str, *, recorded: bool) -> str:
        """Return a complete HTML page, labeled as live or recorded."""
        how = "Recorded on" if recorded else "Measured just now on"
        foot = f"{how} {self.about['machine']}, torch {self.about['torch']}: "
        return self.timeline().to_html(
            title,
            above=f"{_STYLE}<h1>{escape(title)}</h1>",
            # folded, so that a class can first describe what it sees
            below=f"<details><summary>Result</summary><p>{escape(self.sentence)}</p>"
            f"{_html(self.table)}</details>"
            f'<p class="foot">{escape(foot)}<code>{escape(self.about["command"])}</code></p>',
        )


def _html(table: Table) -> str:
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in table]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"


def save_finding(finding: Finding, path: Path, **about: Any) -> None:
    """Write `finding` as JSON, with more facts `about` it."""
    traces = {
        name: {**columns(trace, TICK_NS), "samples": trace.samples, "served": trace.served}
        for name, trace in finding.traces.items()
    }
    found = {"sentence": finding.sentence, "table": finding.table, "about": about, "traces": traces}
    replace_file(path, json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")


def load_finding(path: Path, *, recorded: bool = True) -> Finding:
    """Read a file of `save_finding`; the pictures of a recording are labeled."""
    found = json.loads(path.read_text("utf-8"))
    traces = {}
    for name, data in found["traces"].items():
        note = ", ".join(filter(None, ("recorded" if recorded else "", data["note"])))
        trace = trace_of(_spans(data), label="", note=note, batches=data["served"])
        trace.samples = data["samples"]
        traces[name] = trace
    return Finding(found["sentence"], traces, found["table"], found["about"])


def _spans(data: Mapping[str, Any]) -> Iterator[Span]:
    """Yield the spans of data packed by `columns`."""
    tick_ns = round(data["tick"] * 1e6)
    for lane in data["lanes"]:
        end = batch = 0
        packed = zip(lane["stage"], lane["gap"], lane["length"], lane["batch"], strict=True)
        for stage, gap, length, further in packed:
            start, batch = end + gap, batch + further
            end = start + length
            times = start * tick_ns, end * tick_ns
            yield Span(lane["name"], STAGES[int(stage)], *times, batch)
