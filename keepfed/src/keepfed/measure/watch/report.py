"""Report the lost time of each loader on each rank, with its finding, as text, HTML and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from keepfed.files import replace_file
from keepfed.formatting import percent, plural, wrap
from keepfed.limits import all_cores
from keepfed.measure.advice import Setting, busy_machine, ms, paragraphs
from keepfed.measure.advice.thresholds import WORTHWHILE_GAIN
from keepfed.measure.exchange import chrome_ranks
from keepfed.measure.picture import Timeline
from keepfed.measure.watch.timeline import straggler, timeline, traces
from keepfed.measure.watch.timing.ring_file import Observation, ProgramRun
from keepfed.measure.watch.watched_loop import WatchedLoop, watched_loops
from keepfed.palette import DARK, LIGHT

WIDTH = 96  # characters per line
STYLE = f"""<style>:root{{color-scheme:light dark;{LIGHT.css()}}}
@media screen and (prefers-color-scheme:dark){{:root{{{DARK.css()}}}}}
body{{max-width:60rem;margin:0 auto!important;padding:1.2rem;color:var(--fg);background:var(--bg);
font:1rem/1.45 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;overflow-wrap:anywhere}}
h1{{font-size:1.6rem;line-height:1.2;margin:0 0 .3rem}}h2{{font-size:1.05rem;margin:1rem 0 .2rem}}
p{{margin:.3rem 0}}@page{{size:A4;margin:12mm}}@media print{{html{{font-size:13px}}}}</style>"""


def write(observations: Sequence[Observation], folder: Path, run: ProgramRun) -> dict[str, Any]:
    """Write the page, the trace and the facts into `folder`, and return the facts with the text.

    Args:
        observations: Figures of each loader in each process, at least one.
        folder: Existing folder.
        run: Command, machine and date.
    """
    loops = watched_loops(observations, run.others_cores)
    page, trace = folder / "report.html", folder / "trace.json"
    where = f"Page to print or forward: {page}", f"Trace for https://ui.perfetto.dev: {trace}"
    busiest = max(loops, key=lambda loop: loop.observation.totals.lasted_ns)
    facts = {
        **run._asdict(),
        "advice": _first_advice(loops),
        "lost_share": busiest.lost_share,  # of the loader whose loops took the longest
        "loaders": [_facts(loop) for loop in loops],
        "text": "\n".join([as_text(loops), "", *map(_wrap, where)]),
        "page": str(page),
    }
    replace_file(page, _as_page(loops, run, timeline(observations)))
    replace_file(trace, json.dumps(chrome_ranks(traces(observations))))
    replace_file(folder / "report.json", json.dumps(facts))
    return facts


def as_text(loops: Sequence[WatchedLoop]) -> str:
    """Return the report as text: what to try first, then one paragraph per loader."""
    blocks = [*_warnings(loops), _first_advice(loops)]
    for name, alike in _by_name(loops):
        lines = [name]
        for loop in alike:
            lines.append(f"  {_label(loop, alike)}{_times(loop)}")
            lines += [f"    {sentence}" for sentence in _sentences(loop)]
        blocks.append("\n".join(lines))
    blocks += straggler(loops)
    return "\n".join(map(_wrap, "\n\n".join(blocks).splitlines()))


def _as_page(loops: Sequence[WatchedLoop], run: ProgramRun, picture: Timeline) -> str:
    """Return the same report as a page, with the timeline of the last iterations."""
    above = f"{STYLE}<h1>{escape(run.command)}</h1>"
    above += paragraphs([*_warnings(loops), _first_advice(loops)])
    for name, alike in _by_name(loops):
        above += f"<h2>{escape(name)}</h2>"
        for loop in alike:
            above += paragraphs([f"{_label(loop, alike)}{_times(loop)}.", *_sentences(loop)])
    above += paragraphs(straggler(loops)) + "<h2>The last iterations</h2>"
    below = paragraphs([" · ".join(filter(None, (run.machine, run.ended)))])
    return picture.to_html(f"Watched: {run.command}", above=above, below=below)


def _facts(loop: WatchedLoop) -> dict[str, Any]:
    """Return the description, the figures and the finding of a loop."""
    return {
        **loop.observation.about,
        **asdict(loop.observation.totals),
        "name": loop.name,
        "lost_share": loop.lost_share,
        "finding": loop.finding.facts if loop.finding else None,
        "sentences": _sentences(loop),
    }


def _wrap(line: str) -> str:
    """Break a long line, and indent its continuation lines by two more spaces."""
    indent = line[: len(line) - len(line.lstrip())]
    return wrap(line, indent=len(indent) + 2, most=WIDTH)


def _warnings(loops: Sequence[WatchedLoop]) -> list[str]:
    return busy_machine(Setting(cores=all_cores(), others_cores=loops[0].others_cores))


def _by_name(loops: Sequence[WatchedLoop]) -> Iterator[tuple[str, list[WatchedLoop]]]:
    """Yield the loops of each name by rank, the name with the longest wait first."""
    for name in dict.fromkeys(loop.name for loop in loops):
        alike = [loop for loop in loops if loop.name == name]
        yield name, sorted(alike, key=lambda loop: loop.observation.rank)


def _first_advice(loops: Sequence[WatchedLoop]) -> str:
    """Return what to do first, about the loader that lost the most time."""
    for loop in loops:
        if finding := loop.finding:
            first = f"Try first: {finding.change}"
            if finding.cause == "GPU-bound":
                first = f"{finding.change[0].upper()}{finding.change[1:]}"
            elif finding.gain is not None and finding.gain < WORTHWHILE_GAIN:
                first = "Look first at this loader, but expect only a small gain"
            return f"{first}. Loader: {loop.name}."
    return "The program took too few batches for a recommendation."


def _label(loop: WatchedLoop, alike: Sequence[WatchedLoop]) -> str:
    if len(alike) == 1 and loop.observation.about["ranks"] == 1:
        return ""
    several = len({each.observation.rank for each in alike}) < len(alike)
    about = loop.observation.about
    return f"process {about['pid']}: " if several else f"rank {loop.observation.rank}: "


def _times(loop: WatchedLoop) -> str:
    """Return the number of batches and the times of one loader in one process."""
    totals = loop.observation.totals
    count = plural(totals.iterations, "batch")
    if totals.epochs:
        count += f" in {plural(totals.epochs, 'epoch')}"
    if loop.stride > 1:
        count += f" (1 in {loop.stride} was timed)"
    waited = f"{count}: {ms(totals.waited_ns / 1e9)} in next()"
    if not totals.worked_ns:  # the loop never asked for a second batch
        return waited
    clock = " by the clock of the device" if totals.device_iterations else ""
    lost = f"{percent(loop.lost_share)} of the time lost{clock}"
    return f"{waited}, {ms(totals.worked_ns / 1e9)} in the loop body, {lost}"


def _sentences(loop: WatchedLoop) -> list[str]:
    """Return the finding of one loader in one process."""
    if loop.observation.totals.elsewhere:
        return [
            "A thread of the program calls next(), so the wait of the loop is unknown. Write "
            "`for batch in keepfed.watch(batches)` in the loop itself."
        ]
    m, finding = loop.measurements, loop.finding
    if m is None or finding is None:
        return []
    paces = m.paces
    times = f"One iteration takes {ms(paces.together_s)}, including a wait of {ms(paces.wait_s)}."
    return [times, *finding.sentences]
