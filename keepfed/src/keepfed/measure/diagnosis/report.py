"""The report of a diagnosis: verdict, change, bars, evidence and timeline."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from statistics import median
from typing import Any

from keepfed.formatting import duration, factor, percent, plural, size
from keepfed.measure.advice import Cause, LoopFinding, Measurements, busy_machine, ms, paragraphs
from keepfed.measure.diagnosis.compare import LoopComparison
from keepfed.measure.picture import LOOKS, Picture, as_svg, as_text
from keepfed.measure.trace import Trace

LETTERS = 40  # characters of the longest text bar

# JupyterLab aligns tables to the right by default. The page sets no background, so its colors must
# be readable on a light page and on a dark one.
_STYLE = """
.cd{max-width:960px;line-height:1.45}.cd h4{margin:0 0 .3em;font-size:1.15em}
.cd p{margin:.2em 0}.cd td,.cd th{text-align:left!important;padding:1px 12px 1px 0;
vertical-align:top;font-weight:normal;background:none}.cd tr{background:none}
.cd table{border-collapse:collapse;margin:.5em 0}.cd .bar{display:block;height:14px;min-width:2px;
box-sizing:border-box;border:1px solid gray;print-color-adjust:exact}.cd .wide{width:24em}
"""


@dataclass(frozen=True)
class Diagnosis:
    """The verdict on a loop, which displays itself as text or HTML."""

    finding: LoopFinding
    measurements: Measurements
    trace: Trace  # loader and step together
    proof: LoopComparison | None = None  # measured gain of the change
    asked_to_prove: bool = False

    @property
    def cause(self) -> Cause:
        """What the loop waits for."""
        return self.finding.cause

    def __repr__(self) -> str:
        """Return the report as text."""
        bars = [
            f"  {name:<13} {'#' * max(1, round(LETTERS * share))} {time} per batch"
            for name, share, time, _ in _bars(self.measurements)
        ]
        rows = evidence(self.measurements)
        width = max(map(len, rows))
        return "\n".join(
            [
                *busy_machine(self.measurements.setting),
                *self.finding.sentences,
                *_figures(self),
                *("", *bars, "", "Evidence"),
                *(f"  {name:<{width}}  {figure}" for name, figure in rows.items()),
                *("", as_text(Picture([self.trace]))),
            ]
        )

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": _page(self)}


def _page(diagnosis: Diagnosis) -> str:
    """Return the report as HTML that adopts the colors of the page around it."""
    m, finding = diagnosis.measurements, diagnosis.finding
    bars = "".join(
        f'<tr><th>{name}</th><td class="wide"><span class="bar" style="width:'
        f'{share:.1%};background:{color}"></span></td><td>{time} per batch</td></tr>'
        for name, share, time, color in _bars(m)
    )
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(figure)}</td></tr>"
        for name, figure in evidence(m).items()
    )
    return (
        f'<style>{_STYLE}</style><div class="cd">{paragraphs(busy_machine(m.setting))}'
        f"<h4>{escape(finding.measured)}</h4>"
        f"{paragraphs([*finding.sentences[1:], *_figures(diagnosis)])}<table>{bars}</table>"
        f'<details open=""><summary>Evidence</summary><table>{rows}</table></details>'
        f"{as_svg(Picture([diagnosis.trace]))}</div>"
    )


def _bars(m: Measurements) -> list[tuple[str, float, str, str]]:
    """Return (name, share of the longest time, time as text, color) of each run."""
    runs = {
        "loader alone": (m.paces.loader_s or 0.0, "read"),
        "step alone": (m.paces.step_s, "compute"),
        "together": (m.iteration_s, "wait"),
    }
    longest = max(seconds for seconds, _ in runs.values()) or 1
    return [(name, s / longest, ms(s), LOOKS[look].color) for name, (s, look) in runs.items()]


def _figures(diagnosis: Diagnosis) -> list[str]:
    """Return the sentences about the proof and about an ideal loader."""
    proof = [_proof(diagnosis)] if diagnosis.asked_to_prove else []
    if diagnosis.cause in ("GPU-bound", "memory"):
        return proof
    speed = f"{factor(diagnosis.measurements.headroom)} times as fast"
    return [*proof, f"Headroom: with an infinitely fast loader, training would be {speed}."]


def _proof(diagnosis: Diagnosis) -> str:
    proof = diagnosis.proof
    if proof is None:
        why = "this change needs your code. Make it, and diagnose the loop again"
        if diagnosis.cause in ("GPU-bound", "memory"):
            why = "the change does not make the loop faster"
        elif diagnosis.finding.how is not None:
            why = "too few batches arrived in time. Increase `seconds`"
        return f"Not proved: {why}."
    low, high = (factor(gain) for gain in (min(proof.gains), max(proof.gains)))
    return (
        f"Proved: {ms(median(proof.changed_s))} per batch with the change and "
        f"{ms(median(proof.now_s))} without, so it is {factor(proof.gain)} times as fast ({low} to "
        f"{high} in {plural(len(proof.gains), 'round')})."
    )


def evidence(m: Measurements) -> dict[str, str]:
    """Return the measurements as text, by name."""
    paces, setting, fetching, moving, memory = m.paces, m.setting, m.fetching, m.moving, m.memory
    rows = {
        "parts of a step": _step(m),
        "next() found no batch ready": f"in {percent(paces.waited_share)} of the calls, and waited "
        f"{ms(paces.wait_s)} on average",
        "sampler": f"{ms(paces.sampling_s)} of this wait, in the main process",
        "fetch": f"{ms(fetching.fetch_s)}: computing {ms(fetching.computing_s)}, waiting "
        f"{ms(m.waiting_s)}, ready but without a core {ms(fetching.delay_s)}",
        "collate, part of a fetch": ms(fetching.collate_s),
    }
    if fetching.stages:
        stages = (f"{name} {ms(s)}" for name, s in fetching.stages.items())
        rows["stages of a fetch"] = ", ".join(stages)
    rows["workers"] = f"none, {plural(setting.cores, 'core')} available"
    rows["batch"] = size(moving.batch_bytes)
    if setting.workers:
        rows["workers"] = (
            f"{setting.workers} by {setting.start_method}, "
            f"prefetch_factor={setting.prefetch_factor}, may use {setting.worker_cores} of "
            f"{plural(setting.cores, 'core')}, pools of {plural(fetching.pool_threads, 'thread')}"
        )
        rows["batch"] += (
            f", moved in {ms(moving.sending_s)} of CPU time, {ms(moving.receiving_s)} of it in the "
            "main process"
        )
    if setting.workers and memory is not None:
        rows["memory of the workers"] = (
            f"grew by {size(memory.grown_bytes)} in {memory.watched} batches, up to "
            f"{size(m.in_flight_bytes)} in flight"
        )
    if fetching.asked_bytes is not None:
        rows["read per batch"] = (
            f"{size(fetching.asked_bytes)} in {plural(round(fetching.read_calls or 0), 'call')}, "
            f"{size(fetching.disk_bytes or 0)} of it from a disk"
        )
    rows["slow fetches"] = (
        f"{percent(fetching.slow_share)} of the fetches, the slowest {ms(fetching.slowest_s)} with "
        "a core to itself"
    )
    if paces.start_up_s is not None:
        batches = f", with {plural(paces.epoch, 'batch')}" if paces.epoch else ""
        rows["start and end of an epoch"] = f"{duration(paces.start_up_s * 1e9)}{batches}"
    return rows


def _step(m: Measurements) -> str:
    step, paces = m.step, m.paces
    if step.compute_s is None:
        copies = f"copies {ms(step.transfer_s)} if run alone, " if step.transfer_s else ""
        return f"{copies}the rest of {ms(paces.step_s)} is unknown, because it records no spans"
    return (
        f"computing {ms(step.compute_s)}, copies {ms(m.transfer_s)}, the rest {ms(m.host_s)}, "
        f"without a core {ms(paces.step_delay_s or 0.0)}"
    )
