"""Say what was watched: per loader and rank what it waits for, and what to try first.

One page of text, one HTML page with the timeline of the last turns, one file for Perfetto.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from textwrap import fill

from keepfed.files import replace_file
from keepfed.limits import all_cores
from keepfed.measure.advice import Measurements, Setting, busy_machine, waits_for_cores
from keepfed.measure.advice.thresholds import ACCEPTABLE_LOSS, NO_GAIN, WORTHWHILE_GAIN
from keepfed.measure.exchange import chrome_ranks
from keepfed.measure.picture import Timeline
from keepfed.measure.ranks import find_straggler
from keepfed.measure.records import MAIN, Fetch
from keepfed.measure.spans import OTHERS, Span
from keepfed.measure.trace import Trace
from keepfed.measure.watch.figures import WatchedLoop, loops
from keepfed.measure.watch.timing.ring_file import Observation
from keepfed.words import duration, factor, percent, plural

WIDTH = 96  # letters of a line
ITERATIONS = 200  # of the busiest loader, that are drawn
LIMITS = (
    "Watching cannot tell what the step takes by itself, whether thread pools hinder each other, "
    "and whether memory grows: `diagnose(loader, step)` tries that."
)
_STYLE = """<style>:root{color-scheme:light dark}body{font:15px/1.45 system-ui,sans-serif}
pre{white-space:pre-wrap;font:13px/1.5 ui-monospace,monospace;max-width:60em}</style>"""


def write(
    seen: Sequence[Observation], folder: Path, command: str, others_cores: float = 0.0
) -> str:
    """Write page and trace into `folder`; return what was found, as text."""
    text = findings(seen, others_cores)
    if not seen:
        return text
    folder.mkdir(parents=True, exist_ok=True)
    above = f"{_STYLE}<h1>{escape(command)}</h1><pre>{escape(text)}</pre>"
    page, trace = folder / "timeline.html", folder / "trace.json"
    replace_file(page, timeline(seen).to_html(f"Watched: {command}", above=above))
    replace_file(trace, json.dumps(chrome_ranks(traces(seen))))
    return f"{text}\n\nThe last turns: {page}, and for https://ui.perfetto.dev: {trace}"


def findings(seen: Sequence[Observation], others_cores: float = 0.0) -> str:
    """Return in words what each loader cost each rank.

    `others_cores` is how many cores other programs kept busy.
    """
    found = loops(seen, others_cores)
    if not found:
        return _wrap(
            "No DataLoader gave a batch: this program makes its batches itself, or made none. "
            "Write `for batch in keepfed.watch(batches)` where it loops over them, and run it "
            "again. Where a function makes each of them, `batches` is `iter(function, None)`."
        )
    names = list(dict.fromkeys(loop.name for loop in found))
    blocks = [_loader_paragraph([loop for loop in found if loop.name == name]) for name in names]
    busy = busy_machine(Setting(cores=all_cores(), others_cores=others_cores))
    parts = [
        *busy,
        _first_advice(found),
        *blocks,
        *_straggler_lines(found),
        *_device_lines(found),
        LIMITS,
    ]
    return "\n".join(_wrap(line) for line in "\n\n".join(parts).splitlines())


def _wrap(line: str) -> str:
    """Break a long line, and let the rest of it begin where the line does."""
    indent = line[: len(line) - len(line.lstrip())]
    return fill(line, WIDTH, subsequent_indent=f"{indent}  ")


def _first_advice(found: Sequence[WatchedLoop]) -> str:
    """Return what to try first."""
    worst = next((loop for loop in found if loop.cause), None)
    if worst is None or worst.recommendation is None or worst.measurements is None:
        return "Too few batches were taken to say what to change."
    if worst.cause == "GPU-bound":
        if waits_for_cores(worst.measurements):
            return (
                f"Watch it again when no other program computes: whether {worst.name}, keeps up "
                "cannot be told where all cores are taken."
            )
        if _lost_at_the_start(worst, worst.measurements):
            return (
                f"Look first at how an epoch of {worst.name}, begins: later its loop hardly waits."
            )
        return (
            f"Leave the loaders alone: if {worst.name}, never let its loop wait, that would be "
            f"{_ideal_speed(worst.measurements)}."
        )
    if worst.recommendation.gain < WORTHWHILE_GAIN:
        return f"Look first at {worst.name}, where a change may gain a little."
    return f"Try first: {worst.recommendation.change}. This is for {worst.name}."


def _loader_paragraph(alike: Sequence[WatchedLoop]) -> str:
    """Return the paragraph of one loader, with a line for each process."""
    lines = [alike[0].name]
    for loop in sorted(alike, key=lambda loop: loop.seen.rank):
        lines.append(f"  {_process_label(loop, alike)}{_time_line(loop)}")
        lines += [f"    {said}" for said in _diagnosis_lines(loop)]
    return "\n".join(lines)


def _process_label(loop: WatchedLoop, alike: Sequence[WatchedLoop]) -> str:
    if len(alike) == 1 and loop.seen.about["ranks"] == 1:
        return ""
    several = len({one.seen.rank for one in alike}) < len(alike)
    return f"process {loop.seen.about['pid']}: " if several else f"rank {loop.seen.rank}: "


def _time_line(loop: WatchedLoop) -> str:
    """Return the figures of one loader in one process."""
    totals = loop.seen.totals
    count = plural(totals.iterations, "batch")
    if totals.epochs:
        count += f" in {plural(totals.epochs, 'epoch')}"
    if loop.stride > 1:
        count += f" (1 of {loop.stride} was timed)"
    waited, worked = duration(totals.waited_ns), duration(totals.worked_ns)
    if not totals.worked_ns:  # nobody came back for a second batch
        return f"{count}: {waited} in next()"
    return f"{count}: {waited} in next() and {worked} in the loop, {percent(loop.share)} lost"


def _diagnosis_lines(loop: WatchedLoop) -> list[str]:
    """Return what a diagnosis says of these figures, and the change that it names."""
    if loop.seen.totals.elsewhere:
        return [
            "A thread of the program calls next(), so that the wait of the loop is not known: "
            "write `for batch in keepfed.watch(...)` around what the loop itself takes."
        ]
    m, told = loop.measurements, loop.recommendation
    if m is None or told is None:
        return []
    turn = (
        f"A turn takes {_duration(m.paces.together_s)}, {_duration(m.paces.wait_s)} of it waiting."
    )
    if loop.cause == "GPU-bound":
        if waits_for_cores(m):
            return [
                f"{turn} Other programs, or its own workers, had the cores: whether it keeps up by "
                "itself cannot be told."
            ]
        if _lost_at_the_start(loop, m):
            return [
                f"{turn} Most of what was lost is the wait for the first batches of the epochs."
            ]
        ideal = f"an infinitely fast one would make this loop {_ideal_speed(m)}"
        return [f"{turn} The loader keeps up: {ideal}."]
    if told.gain < WORTHWHILE_GAIN:
        return [f"{turn} {told.verdict}", f"Change that may gain a little: {told.change}."]
    # what workers that compute take from the step cannot be seen: without them it may be quicker
    limit = "up to about " if m.setting.workers else "at most "
    most = limit if told.at_most else ""
    what = "each epoch after the first" if loop.cause == "start-up" else "this loop"
    low, high = map(factor, loop.gains)
    parts = f" ({low} to {high} by parts of the run)" if low != high else ""
    gain = f"Predicted gain: {what} {most}{factor(told.gain)} times as fast{parts}."
    return [f"{turn} {told.verdict}", f"Change: {told.change}. {gain}"]


def _lost_at_the_start(loop: WatchedLoop, m: Measurements) -> bool:
    """Tell whether a loop that loses much does so where its turns are not steady yet."""
    return loop.share > ACCEPTABLE_LOSS and 2 * m.paces.wait_s < loop.share * m.paces.together_s


def _ideal_speed(m: Measurements) -> str:
    """Return what the loop would be with an infinitely fast loader."""
    if m.headroom < NO_GAIN:
        return "no faster"
    return f"{factor(m.headroom)} times as fast"


def _duration(seconds: float) -> str:
    return duration(seconds * 1e9)


def _straggler_lines(found: Sequence[WatchedLoop]) -> list[str]:
    """Return for whom the ranks wait, if they meet at all."""
    together = [one for one in found if one.name == found[0].name and one.seen.about["ranks"] > 1]
    together.sort(key=lambda loop: loop.seen.rank)
    if len(together) < 2 or len(together) != len({one.seen.rank for one in together}):
        return []
    arrivals = _arrivals([loop.seen for loop in together])
    return [str(find_straggler(arrivals))] if arrivals[0].served > 1 else []


def _arrivals(seen: Sequence[Observation]) -> list[Trace]:
    """Return for each rank when it had each batch: ranks that meet in each step leave together."""
    by_number = [{each.number: each for each in one.iterations} for one in seen]
    common = sorted(set.intersection(*map(set, by_number)))  # ranks may have timed different ones
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
    """Return how idle time divides, as far as that is known."""
    on = next((loop for loop in found if loop.seen.totals.device_iterations), None)
    if on is None:
        return [
            "No CUDA device computed: what the loop does between two batches is its own work, of "
            "which copies and the program cannot be told apart."
        ]
    return [
        f"Of the device, by its own clock: idle for the loader {percent(on.share)} of the time. "
        "What copies and the program cost it lies in the rest: events around next() do not show "
        "it, `torch.profiler` does."
    ]


def traces(seen: Sequence[Observation]) -> dict[str, Trace]:
    """Return of each process the last turns as a trace, on one clock; by rank."""
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
    """Return the picture of the last turns, of all processes below each other."""
    found = traces(seen)
    return Timeline(found if len(found) > 1 else next(iter(found.values())))


def _trace(group: Sequence[Observation]) -> Trace:
    """Return the last turns of one process."""
    busiest = max(group, key=lambda one: one.totals.iterations)
    first, end_ns = busiest.iterations[-ITERATIONS:][0], busiest.iterations[-1].got_ns
    trace = Trace(clock=lambda: end_ns)
    trace.note, trace.sample_ids = "watched: the last turns", None
    trace.starts_midway = first.place > 0
    if (stride := WatchedLoop(busiest).stride) > 1:
        trace.mention(f"1 of {stride} batches was timed")
    if busiest.about["ranks"] > 1:
        trace.mention("computing includes the wait for other ranks")
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
    """Return what is known of how batch `number` was made."""
    lane = f"worker {fetch.worker}" if fetch.worker != MAIN else "main"
    if not fetch.collated_ns:
        return [Span(lane, "read", fetch.began_ns, fetch.ended_ns, number)]
    return [
        Span(lane, "read", fetch.began_ns, fetch.collated_ns, number),
        Span(lane, "collate", fetch.collated_ns, fetch.ended_ns, number),
    ]
