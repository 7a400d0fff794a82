"""Report the lost time of each loader on each rank, and recommend a change.

The report consists of a text, an HTML page with the timeline of the last iterations, a trace file
for Perfetto, and a JSON file with the facts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keepfed.files import replace_file
from keepfed.formatting import duration, factor, percent, plural, wrap
from keepfed.limits import all_cores
from keepfed.measure.advice import (
    Finding,
    Measurements,
    Setting,
    busy_machine,
    waits_for_cores,
)
from keepfed.measure.advice.thresholds import ACCEPTABLE_LOSS, NO_GAIN, WORTHWHILE_GAIN
from keepfed.measure.exchange import chrome_ranks
from keepfed.measure.picture import Timeline
from keepfed.measure.ranks import find_straggler
from keepfed.measure.records import MAIN, Fetch
from keepfed.measure.spans import OTHERS, Span
from keepfed.measure.trace import Trace
from keepfed.measure.watch.output import NO_BATCH, REPORT
from keepfed.measure.watch.page import write_page
from keepfed.measure.watch.proof import compare, facts_of
from keepfed.measure.watch.timing.ring_file import Observation, ProgramRun
from keepfed.measure.watch.watched_loop import WatchedLoop, loops

WIDTH = 96  # characters per line
ITERATIONS = 200  # number of iterations in the timeline, for the busiest loader


def write(
    seen: Sequence[Observation], folder: Path, run: ProgramRun, earlier: Sequence[Path] = ()
) -> dict[str, Any]:
    """Write the report into `folder`, and return its facts, with the complete text.

    Args:
        seen: Figures of each loader in each process, at least one.
        folder: Existing folder.
        run: Command, machine and date.
        earlier: Folders of earlier reports, the last one first.
    """
    found = loops(seen, run.others_cores)
    page, trace = folder / "report.html", folder / "trace.json"
    where = f"Page to print or forward: {page}", f"Trace for https://ui.perfetto.dev: {trace}"
    busiest = max(found, key=lambda loop: loop.seen.totals.iterations)
    facts = {
        **run._asdict(),
        "warnings": _busy(run.others_cores),
        "advice": _first_advice(found),
        "loaders": [facts_of(loop) for loop in found],
        "proof": compare(run, facts_of(busiest), earlier),
        "text": "\n".join([findings(seen, run.others_cores), "", *map(_wrap, where)]),
        "page": str(page),
    }
    write_page(page, run, timeline(seen), facts, found[0])
    replace_file(trace, json.dumps(chrome_ranks(traces(seen))))
    replace_file(folder / REPORT, json.dumps(facts))
    return facts


def findings(seen: Sequence[Observation], others_cores: float = 0.0) -> str:
    """Return the report as text: what to try first, then one paragraph per loader.

    Args:
        seen: Figures of each loader in each process.
        others_cores: Number of cores that other programs kept busy.
    """
    found = loops(seen, others_cores)
    if not found:
        return _wrap(NO_BATCH)
    names = list(dict.fromkeys(loop.name for loop in found))
    blocks = [_loader_paragraph([loop for loop in found if loop.name == name]) for name in names]
    parts = [
        *_busy(others_cores),
        _first_advice(found),
        *blocks,
        *_straggler_lines(found),
        *_device_lines(found),
    ]
    return "\n".join(_wrap(line) for line in "\n\n".join(parts).splitlines())


def _busy(others_cores: float) -> list[str]:
    return busy_machine(Setting(cores=all_cores(), others_cores=others_cores))


def _wrap(line: str) -> str:
    """Break a long line, and indent its continuation lines by two more spaces."""
    indent = line[: len(line) - len(line.lstrip())]
    return wrap(line, indent=len(indent) + 2, most=WIDTH)


def _first_advice(found: Sequence[WatchedLoop]) -> str:
    """Return one or two sentences that recommend the first change to try."""
    for worst in found:
        if worst.cause and (m := worst.measurements) and (advice := worst.finding):
            return f"{_verdict(worst, m, advice)[0]}. Loader: {worst.name}."
    return "The program took too few batches for a recommendation."


def _verdict(loop: WatchedLoop, m: Measurements, advice: Finding) -> tuple[str, str]:
    """Return what to do first, without a full stop, and the sentences for the loop's paragraph."""
    if loop.cause == "GPU-bound":
        if waits_for_cores(m):
            busy = "All cores were busy, so the report cannot tell whether the loader keeps up"
            return f"Run this again while no other program computes. {busy}", f"{busy}."
        if loop.share > ACCEPTABLE_LOSS and 2 * m.paces.wait_s < loop.share * m.paces.together_s:
            start = "Most of the lost time is the wait for the first batches of an epoch"
            return f"Look first at the start of each epoch. {start}", f"{start}."
        faster = "no faster" if m.headroom < NO_GAIN else f"{factor(m.headroom)} times as fast"
        ideal = f"An infinitely fast loader would make this loop {faster}"
        return f"Leave the loaders alone. {ideal}", f"The loader keeps up. {ideal}."
    if advice.gain is None or advice.gain < WORTHWHILE_GAIN:
        first = "Look first at this loader, but expect only a small gain"
        return first, f"Change with a small gain: {advice.change}."
    # Without workers the step may run faster, because workers take CPU time from it. Watching
    # cannot measure this effect, so the bound is approximate.
    limit = "up to about " if m.setting.workers else "at most "
    most = limit if advice.at_most else ""
    what = "each epoch after the first" if loop.cause == "start-up" else "this loop"
    gain = f"Predicted gain: {what} becomes {most}{factor(advice.gain)} times as fast."
    return f"Try first: {advice.change}", f"Change: {advice.change}. {gain}"


def _loader_paragraph(alike: Sequence[WatchedLoop]) -> str:
    """Return the paragraph of one loader, with a line for each process."""
    lines = [alike[0].name]
    for loop in sorted(alike, key=lambda loop: loop.seen.rank):
        lines.append(f"  {_process_label(loop, alike)}{_time_line(loop)}")
        lines += [f"    {line}" for line in _diagnosis_lines(loop)]
    return "\n".join(lines)


def _process_label(loop: WatchedLoop, alike: Sequence[WatchedLoop]) -> str:
    if len(alike) == 1 and loop.seen.about["ranks"] == 1:
        return ""
    several = len({one.seen.rank for one in alike}) < len(alike)
    return f"process {loop.seen.about['pid']}: " if several else f"rank {loop.seen.rank}: "


def _time_line(loop: WatchedLoop) -> str:
    """Return the number of batches and the times of one loader in one process."""
    totals = loop.seen.totals
    count = plural(totals.iterations, "batch")
    if totals.epochs:
        count += f" in {plural(totals.epochs, 'epoch')}"
    if loop.stride > 1:
        count += f" (1 in {loop.stride} was timed)"
    waited, worked = duration(totals.waited_ns), duration(totals.worked_ns)
    if not totals.worked_ns:  # the loop never asked for a second batch
        return f"{count}: {waited} in next()"
    lost = percent(loop.share)
    return f"{count}: {waited} in next(), {worked} in the loop body, {lost} of the time lost"


def _diagnosis_lines(loop: WatchedLoop) -> list[str]:
    """Return the diagnosis of one loader in one process, and the recommended change."""
    if loop.seen.totals.elsewhere:
        return [
            "A thread of the program calls next(), so the wait of the loop is unknown. Write "
            "`for batch in keepfed.watch(batches)` in the loop itself."
        ]
    m, advice = loop.measurements, loop.finding
    if m is None or advice is None:
        return []
    times = (
        f"One iteration takes {_duration(m.paces.together_s)}, "
        f"including a wait of {_duration(m.paces.wait_s)}."
    )
    lines = list(map(str, advice.lines))
    if slowdown := loop.slowdown:
        early, late = map(_duration, slowdown)
        lines.append(
            f"Loading slows down: a fetch takes {early} early in the run, but {late} late in it. "
            "Look for a list or a cache that grows in the dataset."
        )
    verdict = _verdict(loop, m, advice)[1]
    if loop.cause == "GPU-bound":
        return [f"{times} {verdict}", *lines]
    return [f"{times} {advice.measured}", *lines, verdict]


def _duration(seconds: float) -> str:
    return duration(seconds * 1e9)


def _straggler_lines(found: Sequence[WatchedLoop]) -> list[str]:
    """Return a sentence about the slowest rank, if the ranks use the same loader."""
    together = [one for one in found if one.name == found[0].name and one.seen.about["ranks"] > 1]
    together.sort(key=lambda loop: loop.seen.rank)
    if len(together) < 2 or len(together) != len({one.seen.rank for one in together}):
        return []
    arrivals = _arrivals([loop.seen for loop in together])
    return [str(find_straggler(arrivals))] if arrivals[0].served > 1 else []


def _arrivals(seen: Sequence[Observation]) -> list[Trace]:
    """Return for each rank a trace with the arrival time of each batch.

    Ranks that synchronize in each step ask for the next batch at the same time.
    """
    by_number = [{each.number: each for each in one.iterations} for one in seen]
    # Each rank may have timed different iterations.
    common = sorted(set.intersection(*map(set, by_number)))
    found = []
    for one, iterations in zip(seen, by_number, strict=True):
        trace = Trace(clock=lambda: 0)
        trace.served = len(common)
        for number in common:
            each = iterations[number]
            trace.add(Span("main", "wait", each.asked_ns, each.got_ns, number))
            trace.add(Span(OTHERS, "wait", each.got_ns, each.got_ns + 1, number))
            if fetch := one.fetches.get(number):
                for span in _fetch_spans(fetch, number):
                    trace.add(span)
        found.append(trace)
    return found


def _device_lines(found: Sequence[WatchedLoop]) -> list[str]:
    """Return sentences about the idle time of the device and about its unknown part."""
    on = next((loop for loop in found if loop.seen.totals.device_iterations), None)
    if on is None:
        return []
    return [
        f"By its own clock, the device was idle for {percent(on.share)} of the time because of the "
        "loader. The rest can include idle time caused by copies and by the program, which events "
        "around next() do not show. Use `torch.profiler` to see it."
    ]


def traces(seen: Sequence[Observation]) -> dict[str, Trace]:
    """Return a trace of the last iterations of each process, by rank and on one clock."""
    by_process: dict[int, list[Observation]] = {}
    for one in seen:
        by_process.setdefault(one.about["pid"], []).append(one)
    several = len({group[0].rank for group in by_process.values()}) < len(by_process)
    found = {
        f"process {pid}" if several else f"rank {group[0].rank}": _trace(group)
        for pid, group in by_process.items()
    }
    begin = min(trace.begins_ns for trace in found.values())
    for trace in found.values():
        trace.origin_ns = begin
    return found


def timeline(seen: Sequence[Observation]) -> Timeline:
    """Return the timeline of the last iterations, with all processes below each other."""
    found = traces(seen)
    return Timeline(found if len(found) > 1 else next(iter(found.values())))


def _trace(group: Sequence[Observation]) -> Trace:
    """Return a trace of the last iterations of one process."""
    busiest = max(group, key=lambda one: one.totals.iterations)
    first, end_ns = busiest.iterations[-ITERATIONS:][0], busiest.iterations[-1].got_ns
    trace = Trace(clock=lambda: end_ns)
    trace.note, trace.sample_ids = "watched, last iterations", None
    trace.starts_midway = first.place > 0
    if (stride := WatchedLoop(busiest).stride) > 1:
        trace.mention(f"1 in {stride} batches was timed")
    if busiest.about["ranks"] > 1:
        trace.mention("compute includes waiting for other ranks")
    for one in group:
        for each in one.iterations:
            if first.asked_ns <= each.asked_ns and each.got_ns <= end_ns:
                number = each.number
                trace.add(Span("main", "wait", each.asked_ns, each.got_ns, number))
                if each.left_ns > 0:
                    trace.add(Span("main", "compute", each.got_ns, each.left_ns, number))
                if (fetch := one.fetches.get(number)) and fetch.worker != MAIN:
                    for span in _fetch_spans(fetch, number):
                        trace.add(span)
                trace.served += 1
    return trace


def _fetch_spans(fetch: Fetch, number: int) -> list[Span]:
    """Return the spans of the fetch of batch `number`."""
    lane = f"worker {fetch.worker}" if fetch.worker != MAIN else "main"
    if not fetch.collated_ns:
        return [Span(lane, "read", fetch.began_ns, fetch.ended_ns, number)]
    return [
        Span(lane, "read", fetch.began_ns, fetch.collated_ns, number),
        Span(lane, "collate", fetch.collated_ns, fetch.ended_ns, number),
    ]
