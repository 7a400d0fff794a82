"""The page of a watched program to print or forward: verdict, cost, change, proof and timeline."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from keepfed.files import replace_file
from keepfed.formatting import duration, factor, percent
from keepfed.measure.advice import Cause, has_idle_workers, lines_of
from keepfed.measure.picture import Timeline
from keepfed.measure.watch.timing.ring_file import ProgramRun
from keepfed.measure.watch.watched_loop import WatchedLoop
from keepfed.palette import DARK, LIGHT

FIGURES = "figures.json"  # file with the figures that the page of the next run compares
ARGUMENTS = re.compile(r"\w+=[\w.]+(, \w+=[\w.]+)*")  # a change of arguments of the `DataLoader`
BECAUSE: dict[Cause, str] = {
    "storage": "the storage answers too slowly",
    "CPU": "preparing a batch takes more CPU time than the workers have",
    "collate or IPC": "batches are assembled and sent between processes too slowly",
    "main process": "the main process prepares data between the steps",
    "start-up": "the loader starts again in every epoch",
    "uneven": "some batches take much longer than the others",
}
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
    file: Path,
    run: ProgramRun,
    picture: Timeline,
    text: str,
    said: Sequence[str],
    found: Sequence[WatchedLoop],
) -> None:
    """Write the page of a watched program, and the figures for the page of the next run.

    Args:
        file: The page.
        run: Command, machine and date.
        picture: Timeline of the last iterations.
        text: Complete report as text.
        said: Warnings about the measurement, and last a sentence that recommends what to do first.
        found: Watched loops, the one with the longest wait first.
    """
    worst, busiest = found[0], max(found, key=lambda loop: loop.seen.totals.iterations)
    totals, m, advice = busiest.seen.totals, worst.measurements, worst.recommendation
    cause = worst.cause
    figures = {
        "when": run.ended,
        "loader": busiest.name,
        "batch_s": max(totals.lasted_ns, 1) / max(totals.iterations, 1) / 1e9,
    }
    scripts = [word for word in run.command.split() if word.endswith(".py")]
    name = Path(scripts[0]).name if scripts else run.command
    verdict, change = said[-1], ""
    if m and advice and cause and cause in BECAUSE:
        why = "some workers never load" if has_idle_workers(m) else BECAUSE[cause]
        verdict = f"{name} waits {percent(worst.share)} of its time for data, because {why}."
        lines = [advice.verdict, *map(str, lines_of(m, cause))]
        change = f"{_paragraphs(lines)}<h2>The change</h2>{_change(advice.change)}"
    proof = _proof(run, figures, worst)
    above = (
        f'{STYLE}<h1>What {escape(name)} waits for</h1><p class="verdict">{escape(verdict)}</p>'
        f"{_paragraphs(said[:-1])}{_tiles(run, worst)}{change}"
        f"{'<h2>The proof</h2>' * bool(proof)}{_paragraphs(proof)}"
        "<h2>The last iterations</h2>"
    )
    where = " · ".join(filter(None, (run.machine, run.ended)))
    below = (
        f'<p class="soft">{escape(where)}<br><code>keepfed watch {escape(run.command)}</code></p>'
        f"<details><summary>Complete report</summary><pre>{escape(text)}</pre></details>"
    )
    replace_file(file, picture.to_html(f"Watched: {name}", above=above, below=below))
    replace_file(file.with_name(FIGURES), json.dumps(figures))


def _paragraphs(sentences: Sequence[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _tiles(run: ProgramRun, worst: WatchedLoop) -> str:
    """Return the lost time, its cost and the predicted gain as tiles."""
    lost = f"{duration(worst.lost_ns)} of {duration(worst.seen.totals.lasted_ns)}, {worst.name}"
    hours = 100 * worst.share
    cost = f"{hours * run.price:,.0f} €", f"lost, at {run.price:.2f} € an hour"
    tiles = {
        "Waiting": (percent(worst.share), lost),
        "100 hours of training": cost if run.price else (f"{hours:.0f} hours", "lost"),
    }
    if (advice := worst.recommendation) and worst.cause in BECAUSE:
        low, high = map(factor, worst.gains)
        parts = f", {low} to {high} in parts of the run" if low != high else ""
        which = " for later epochs" if worst.cause == "start-up" else ""
        most = "at most " if advice.at_most else ""
        times = f"{most}{factor(advice.gain)} times"
        tiles["With the change"] = times, f"as fast, predicted{which}{parts}"
    shown = "".join(
        f"<div><dt>{title}</dt><dd><b>{escape(value)}</b></dd><dt>{escape(more)}</dt></div>"
        for title, (value, more) in tiles.items()
    )
    return f"<dl>{shown}</dl>"


def _change(change: str) -> str:
    """Return the recommended change as code, or as words if it has no code."""
    words, _, code = change.rpartition(": ")
    if ARGUMENTS.fullmatch(change):
        words, code = "", f"loader = DataLoader(..., {change})"
    if "(" not in code:
        return f"<p>{escape(change)}.</p>"
    return f"<p>{escape(words)}</p><pre>{escape(code)}</pre>"


def _proof(run: ProgramRun, figures: Mapping[str, Any], worst: WatchedLoop) -> list[str]:
    """Return the comparison with the run before, or how to make it."""
    file = Path(run.before, FIGURES)
    if not run.before or not file.is_file():
        if worst.cause not in BECAUSE:
            return []
        return ["Not measured yet. Make the change, and run the same command in the same folder."]
    try:
        before = json.loads(file.read_text("utf-8"))
        faster = factor(before["batch_s"] / figures["batch_s"])
        return [
            f"Measured: this run is {faster} times as fast as the run before.",
            *(
                f"{title}: {duration(1e9 * one['batch_s'])} per batch, {one['loader']}, "
                f"{one['when']}."
                for title, one in (("Before", before), ("Now", figures))
            ),
        ]
    except (OSError, LookupError, TypeError, ValueError):  # a damaged file costs only the proof
        return []
