"""The page of a watched program to print or forward: verdict, cost, change, proof and timeline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from keepfed.files import replace_file
from keepfed.formatting import duration, factor, percent
from keepfed.measure.picture import Timeline
from keepfed.measure.watch.timing.ring_file import ProgramRun
from keepfed.measure.watch.watched_loop import WatchedLoop
from keepfed.palette import DARK, LIGHT

NOT_MEASURED = "Not measured yet. Make the change, and run the same command in the same folder."
ARGUMENTS = re.compile(r"\w+=[\w.]+(, \w+=[\w.]+)*")  # a change of arguments of the `DataLoader`
STYLE = f"""<style>:root{{color-scheme:light dark;{LIGHT.css()}}}
@media screen and (prefers-color-scheme:dark){{:root{{{DARK.css()}}}}}
body{{max-width:60rem;margin:0 auto!important;padding:1.2rem;color:var(--fg);background:var(--bg);
font:1rem/1.45 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;overflow-wrap:anywhere}}
h1{{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem}}h2{{font-size:1.05rem;margin:1rem 0 .2rem}}
p{{margin:.3rem 0}}.soft,dt{{color:var(--soft);font-size:.85rem}}.verdict{{font-size:1.15rem}}
dl{{display:flex;flex-wrap:wrap;gap:.6rem;margin:.8rem 0}}dl div{{flex:1 1 11rem;
padding:.5rem .8rem;border:1px solid var(--line);border-radius:6px}}
dd{{margin:0}}dd b{{font-size:1.4rem}}
pre{{white-space:pre-wrap;font:13px/1.5 ui-monospace,monospace;margin:.3rem 0;padding:.6rem .8rem;
background:var(--track);border-radius:6px;print-color-adjust:exact}}summary{{cursor:pointer}}
@page{{size:A4;margin:12mm}}
@media print{{html{{font-size:13px}}body{{padding:0}}details{{display:none}}}}
</style>"""


def write_page(
    file: Path, run: ProgramRun, picture: Timeline, facts: Mapping[str, Any], worst: WatchedLoop
) -> None:
    """Write the page of a watched program.

    Args:
        file: The page.
        run: Command, machine and date.
        picture: Timeline of the last iterations.
        facts: Facts of the report.
        worst: Loop with the longest wait.
    """
    scripts = [word for word in run.command.split() if word.endswith(".py")]
    name = Path(scripts[0]).name if scripts else run.command
    verdict, change, proof = facts["advice"], "", facts["proof"]
    m, cause, advice = worst.measurements, worst.cause, worst.finding
    if m and cause and advice and worst.waits_for_data:
        verdict = f"{name} waits {percent(worst.share)} of its time for data."
        lines = [advice.measured, *map(str, advice.lines)]
        change = f"{_paragraphs(lines)}<h2>The change</h2>{_change(advice.change)}"
        proof = proof or [NOT_MEASURED]
    above = (
        f'{STYLE}<h1>What {escape(name)} waits for</h1><p class="verdict">{_html(verdict)}</p>'
        f"{_paragraphs(facts['warnings'])}{_tiles(run, worst, facts['warnings'])}{change}"
        f"{'<h2>Before and now</h2>' * bool(proof)}{_paragraphs(proof)}"
        "<h2>The last iterations</h2>"
    )
    where = " · ".join(filter(None, (run.machine, run.ended)))
    below = (
        f'<p class="soft">{escape(where)}<br><code>keepfed watch {escape(run.command)}</code></p>'
        f"<details><summary>Complete report</summary><pre>{_html(facts['text'])}</pre></details>"
    )
    replace_file(file, picture.to_html(f"Watched: {name}", above=above, below=below))


def _html(text: str) -> str:
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _paragraphs(sentences: Sequence[str]) -> str:
    return "".join(f"<p>{_html(sentence)}</p>" for sentence in sentences)


def _tiles(run: ProgramRun, worst: WatchedLoop, warnings: Sequence[str]) -> str:
    """Return the lost time, its cost unless a warning doubts it, and the predicted gain."""
    lost = f"{duration(worst.lost_ns)} of {duration(worst.seen.totals.lasted_ns)}, {worst.name}"
    hours = 100 * worst.share
    cost = f"{hours * run.price:,.0f} €", f"lost, at {run.price:.2f} € an hour"
    tiles = {"Waiting": (percent(worst.share), lost)}
    if not warnings:
        tiles["100 hours of training"] = cost if run.price else (f"{hours:.0f} hours", "lost")
    if (advice := worst.finding) and worst.waits_for_data:
        which = " for later epochs" if worst.cause == "start-up" else ""
        most = "at most " if advice.at_most else ""
        times = f"{most}{factor(advice.gain or 1.0)} times"
        tiles["With the change"] = times, f"as fast, predicted{which}"
    shown = "".join(
        f"<div><dt>{title}</dt><dd><b>{escape(value)}</b></dd><dt>{escape(more)}</dt></div>"
        for title, (value, more) in tiles.items()
    )
    return f"<dl>{shown}</dl>"


def _change(change: str) -> str:
    """Return the recommended change as code, or as words if it has no code."""
    words, _, code = change.rpartition(": ")
    arguments, _, condition = change.partition(", if ")
    if ARGUMENTS.fullmatch(arguments):
        words, code = condition and f"If {condition}:", f"loader = DataLoader(..., {arguments})"
    if "(" not in code:
        return f"<p>{_html(change)}.</p>"
    return f"<p>{_html(words)}</p><pre>{escape(code)}</pre>"
