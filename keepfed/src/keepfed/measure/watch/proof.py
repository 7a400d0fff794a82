"""Compare a loader with the same loader in an earlier run of the same command."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from keepfed.formatting import duration, factor
from keepfed.measure.advice.thresholds import BUSY_CORES
from keepfed.measure.watch.output import REPORT
from keepfed.measure.watch.timing.ring_file import ProgramRun
from keepfed.measure.watch.watched_loop import WatchedLoop

SAME = "kind", "dataset", "batch_size", "rank"  # what identifies a loader in two runs
SETTINGS = (
    "takes", "getitems", "workers", "prefetch_factor", "persistent", "pinned", "start_method",
    "code",
)  # fmt: skip


def facts_of(loop: WatchedLoop) -> dict[str, Any]:
    """Return the figures and the advice of a loop for `report.json`. Times are in seconds."""
    about, totals, advice = loop.seen.about, loop.seen.totals, loop.finding
    facts = {
        "name": loop.name,
        **{name: about.get(name) for name in SAME + SETTINGS},
        "batches": totals.iterations,
        "epochs": totals.epochs,
        "waited_s": totals.waited_ns / 1e9,
        "worked_s": totals.worked_ns / 1e9,
        "lost_share": loop.share,
        "batch_s": totals.lasted_ns / totals.iterations / 1e9,
        "batch_s_of_parts": loop.parts_s,
        "cause": loop.cause,
    }
    if advice:
        facts |= {"verdict": advice.measured, "change": advice.change, "gain": advice.gain}
        facts |= {"gain_is_at_most": advice.at_most}
    return facts


def compare(run: ProgramRun, now: Mapping[str, Any], earlier: Iterable[Path]) -> list[str]:
    """Return sentences about the last earlier run of the same command with the same loader.

    Args:
        run: This run.
        now: Facts of a loader in this run.
        earlier: Folders of earlier reports, the last one first.
    """
    for folder in earlier:
        try:
            report = json.loads((folder / REPORT).read_text("utf-8"))
            if report["command"] == run.command:
                alike = (f for f in report["loaders"] if all(f[name] == now[name] for name in SAME))
                for before in alike:
                    return _sentences(run, now, report, before)
        except (OSError, LookupError, TypeError, ValueError):  # a damaged file is no run
            continue
    return []


def _sentences(
    run: ProgramRun, now: Mapping[str, Any], report: Mapping[str, Any], before: Mapping[str, Any]
) -> list[str]:
    (low, high), (low_before, high_before) = now["batch_s_of_parts"], before["batch_s_of_parts"]
    ratio = before["batch_s"] / now["batch_s"]
    if max(run.others_cores, report["others_cores"]) >= BUSY_CORES:
        verdict = "Other programs were busy during a run, so the two runs cannot be compared."
    elif all(now[name] == before[name] for name in SETTINGS):
        verdict = (
            "Nothing has changed: the run before had the same command, the same Python files and "
            "the same settings of the loader. A difference comes from the machine or the data."
        )
    elif low_before > high:
        verdict = f"Measured: this run is {factor(ratio)} times as fast as the run before."
    elif low > high_before:
        verdict = f"Measured: a batch takes {factor(1 / ratio)} times as long as in the run before."
    else:
        verdict = "No difference: parts of one run differ as much as the two runs."
    runs = ("Before", before, report["ended"]), ("Now", now, run.ended)
    return [verdict, *(f"{title}: {_pace(facts)}, {ended}." for title, facts, ended in runs)]


def _pace(facts: Mapping[str, Any]) -> str:
    low, high = (duration(1e9 * value) for value in facts["batch_s_of_parts"])
    parts = f" ({low} to {high} in parts of the run)" if low != high else ""
    return f"{duration(1e9 * facts['batch_s'])} per batch{parts}, {facts['name']}"
