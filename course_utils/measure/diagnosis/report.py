"""Say what a diagnosis found: one sentence, the evidence, and the page with bars and timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from course_utils.measure.diagnosis.measurements import Measurements
from course_utils.measure.diagnosis.verdict import (
    Cause,
    moves_bytes,
    oversubscribed,
    shares_too_few_cores,
    slowest_stage,
)
from course_utils.measure.picture import LOOKS, Picture, as_svg, as_text
from course_utils.measure.trace import Trace
from course_utils.words import duration, percent, plural, size

LETTERS = 40  # length of the longest bar made of text

# JupyterLab would align tables to the right. Nothing sets a background, and the greys and colours
# have 3:1 or more on white and on #111.
_STYLE = """
.cd{max-width:960px;line-height:1.45}.cd h4{margin:0 0 .3em;font-size:1.15em}
.cd p{margin:.2em 0}.cd td,.cd th{text-align:left!important;padding:1px 12px 1px 0;
vertical-align:top;font-weight:normal;background:none}.cd tr{background:none}
.cd table{border-collapse:collapse;margin:.5em 0}.cd .bar{display:block;height:14px;min-width:2px;
box-sizing:border-box;border:1px solid #808080;print-color-adjust:exact}.cd .wide{width:24em}
.cd .soft{opacity:.75}.cd details{margin:.5em 0}
"""


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on a loop; shows itself as a page of text or HTML."""

    cause: Cause
    stage: str  # of the loader, such as "decode", if it names one and is the cause; else ""
    verdict: str  # one sentence
    change: str  # the one thing to do, such as "num_workers=4"
    gain: float  # how many times faster the model predicts the loop to be after the change
    at_most: bool  # the gain is that of removing the cause altogether
    headspace: float  # how many times faster it would be with an infinitely fast loader
    loader_s: float  # per batch, the loader alone
    step_s: float  # per batch, the step alone
    together_s: float  # per batch, both, with start-up shared out among the batches of an epoch
    evidence: Mapping[str, str]  # what was measured -> the figure, as the page shows them
    measurements: Measurements = field(repr=False)
    trace: Trace = field(repr=False)  # of loader and step together

    def __repr__(self) -> str:
        """Return the page as text."""
        return _text(self)

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": _page(self)}


def _text(diagnosis: Diagnosis) -> str:
    """Return the page as lines of text."""
    longest = max(seconds for _, seconds, _ in _bars(diagnosis)) or 1
    bars = [
        f"  {name:<13} {'#' * max(1, round(LETTERS * seconds / longest))} {ms(seconds)} a batch"
        for name, seconds, _ in _bars(diagnosis)
    ]
    width = max(map(len, diagnosis.evidence))
    evidence = [f"  {name:<{width}}  {figure}" for name, figure in diagnosis.evidence.items()]
    return "\n".join(
        [
            diagnosis.verdict,
            f"Change: {diagnosis.change}.",
            _gain(diagnosis),
            _headspace(diagnosis),
            "",
            *bars,
            "",
            "Evidence",
            *evidence,
            "",
            as_text(Picture([diagnosis.trace])),
        ]
    )


def _page(diagnosis: Diagnosis) -> str:
    """Return the page as HTML, which follows the colours around it."""
    longest = max(seconds for _, seconds, _ in _bars(diagnosis)) or 1
    bars = "".join(
        f'<tr><th>{name}</th><td class="wide"><span class="bar" style="width:'
        f'{seconds / longest:.1%};background:{colour}"></span></td><td>{ms(seconds)} a batch</td>'
        "</tr>"
        for name, seconds, colour in _bars(diagnosis)
    )
    rows = "".join(
        f'<tr><th class="soft">{escape(name)}</th><td>{escape(figure)}</td></tr>'
        for name, figure in diagnosis.evidence.items()
    )
    return (
        f'<style>{_STYLE}</style><div class="cd"><h4>{escape(diagnosis.verdict)}</h4>'
        f"<p>Change: <b>{escape(diagnosis.change)}</b></p><p>{_gain(diagnosis)}</p>"
        f"<p>{_headspace(diagnosis)}</p><table>{bars}</table>"
        f'<details open=""><summary>Evidence</summary><table>{rows}</table></details>'
        f"{as_svg(Picture([diagnosis.trace]))}</div>"
    )


def _bars(diagnosis: Diagnosis) -> list[tuple[str, float, str]]:
    return [
        ("loader alone", diagnosis.loader_s, LOOKS["read"].colour),
        ("step alone", diagnosis.step_s, LOOKS["compute"].colour),
        ("together", diagnosis.together_s, LOOKS["wait"].colour),
    ]


def _gain(diagnosis: Diagnosis) -> str:
    if diagnosis.cause == "GPU-bound":
        return "Predicted gain: none; the loader is not what training waits for."
    if diagnosis.cause == "memory":
        return "Predicted gain: not speed, but a run that does not end for want of memory."
    most = "at most " if diagnosis.at_most else ""
    return f"Predicted gain: training {most}{diagnosis.gain:.2g} times as fast."


def _headspace(diagnosis: Diagnosis) -> str:
    return (
        f"Headspace: with an infinitely fast loader training would be {diagnosis.headspace:.2g} "
        "times as fast."
    )


def sentence(m: Measurements, cause: Cause) -> str:
    """Return the verdict in one sentence."""
    say: Mapping[Cause, Callable[[Measurements], str]] = {
        "GPU-bound": _gpu_bound,
        "storage": lambda m: (
            f"Storage: of the {ms(m.fetch_s)} that a fetch takes, {_where(m)} waits "
            f"{ms(m.waiting_s)} and computes {ms(m.computing_s)}."
        ),
        "CPU": _cpu,
        "collate or IPC": _moving,
        "transfer": lambda m: (
            f"Transfer: in a step of {ms(m.step_s)}, {ms(m.transfer_s)} are copies to the device "
            "during which it computes nothing."
        ),
        "main process": lambda m: (
            f"Main process: of a step of {ms(m.step_s)}, the device has nothing to do for "
            f"{ms(m.host_s)}, while Python runs or waits."
        ),
        "start-up": lambda m: (
            f"Start-up: each epoch of {m.epoch} batches begins with {duration(m.start_up_s * 1e9)} "
            f"in which nothing is loaded, then takes {ms(m.together_s)} a batch."
        ),
        "memory": _memory,
        "uneven": lambda m: (
            f"Uneven: {percent(m.slow_share)} of the fetches take {percent(m.slow_time)} of the "
            f"time (up to {ms(m.slowest_s)}, on average {ms(m.fetch_s)}), and all others wait for "
            "them."
        ),
    }
    return say[cause](m)


def _gpu_bound(m: Measurements) -> str:
    return (
        f"GPU-bound, leave it alone: the step takes {ms(m.step_s)} by itself and "
        f"{ms(m.together_s)} with the loader, so an infinitely fast loader would make training "
        f"{m.headspace:.2f} times as fast."
    )


def _cpu(m: Measurements) -> str:
    start = f"CPU: a fetch computes for {ms(m.computing_s)} of {ms(m.fetch_s)}"
    if shares_too_few_cores(m):
        share = plural(m.worker_cores, "core")
        return f"{start}, and the {m.workers} workers share {share} of {m.cores}."
    if oversubscribed(m):
        who = plural(max(m.workers, 1), "worker" if m.workers else "process")
        return (
            f"{start}, and {who} with {m.pool_threads} threads each hinder each other: with one "
            f"thread a batch is loaded {m.one_thread_gain:.1f} times as fast."
        )
    stage = slowest_stage(m)
    if stage:
        part = percent(m.stages[stage] / sum(m.stages.values()))
        return f"CPU in the stage {stage}: {start[5:]}, {part} of it there."
    return f"CPU in the dataset: {start[5:]}."


def _moving(m: Measurements) -> str:
    if m.collate_s > m.fetch_s / 2 and m.collate_s > m.sending_s:
        if moves_bytes(m):
            return (
                f"IPC: {ms(m.collate_s)} of the {ms(m.fetch_s)} of a fetch go into copying the "
                f"{size(m.batch_bytes)} of a batch into shared memory."
            )
        return f"Collate: of the {ms(m.fetch_s)} of a fetch, {ms(m.collate_s)} go into collating."
    return (
        f"IPC: to move a batch of {size(m.batch_bytes)} from a worker to the main process costs "
        f"{ms(m.sending_s)} of processor time, to make it {ms(m.making_s)}."
    )


def _memory(m: Measurements) -> str:
    if m.grown_bytes > m.in_flight_bytes:
        return (
            f"Memory: what the workers have of their own grew from {size(m.own_bytes)} by "
            f"{size(m.grown_bytes)} in {m.watched} batches."
        )
    return (
        f"Memory: the queue can hold {m.workers} x {m.prefetch_factor} + 1 batches of "
        f"{size(m.batch_bytes)}, together {size(m.in_flight_bytes)} of the {size(m.free_bytes)} "
        "that are free."
    )


def _where(m: Measurements) -> str:
    return "a worker" if m.workers else "the main process"


def evidence(m: Measurements) -> dict[str, str]:
    """Return what was measured: its name, and the figure in words."""
    found = {
        "a step consists of": _step(m),
        "next() found no batch ready": f"{percent(m.waited_share)} of the calls, on average "
        f"{ms(m.wait_s)} of waiting",
        "a fetch": f"{ms(m.fetch_s)}: computing {ms(m.computing_s)}, waiting {ms(m.waiting_s)}, "
        f"ready but without a core {ms(m.delay_s)}",
        "of it in collate": ms(m.collate_s),
    }
    if m.stages:
        found["stages of a fetch"] = ", ".join(f"{s} {ms(t)}" for s, t in m.stages.items())
    if m.workers:
        found["workers"] = (
            f"{m.workers} by {m.start_method}, prefetch_factor={m.prefetch_factor}, may use "
            f"{m.worker_cores} of {plural(m.cores, 'core')}, pools of "
            f"{plural(m.pool_threads, 'thread')}"
        )
        found["moving a batch"] = (
            f"{size(m.batch_bytes)}, {ms(m.sending_s)} of processor time, "
            f"{ms(m.receiving_s)} of it in the main process"
        )
        found["memory of the workers"] = (
            f"grew by {size(m.grown_bytes)} in {m.watched} batches; in flight at most "
            f"{size(m.in_flight_bytes)}"
        )
    else:
        found["workers"] = f"none; {plural(m.cores, 'core')} to use"
        found["a batch"] = size(m.batch_bytes)
    found["read per batch"] = f"{size(m.asked_bytes)}, {size(m.disk_bytes)} of it from a disk"
    found["slow fetches"] = f"{percent(m.slow_share)} of them, the slowest {ms(m.slowest_s)}"
    found["start of an epoch"] = duration(m.start_up_s * 1e9)
    if m.epoch:
        found["start of an epoch"] += f", of {plural(m.epoch, 'batch')}"
    return found


def _step(m: Measurements) -> str:
    if m.compute_s is None:
        copies = f"copies {ms(m.transfer_s)} by themselves, " if m.transfer_s else ""
        return f"{copies}the rest of {ms(m.step_s)} is not known: it records no spans"
    return f"computing {ms(m.compute_s)}, copies {ms(m.transfer_s)}, neither of them {ms(m.host_s)}"


def ms(seconds: float) -> str:
    """Return a time of a batch as it reads best."""
    return duration(seconds * 1e9)
