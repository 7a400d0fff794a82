"""Choose the one change to name, from the catalogue and from what was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_utils.measure.advice.catalogue import Advice, applicable, more_workers
from course_utils.measure.advice.change import Change, and_lasting, with_arguments
from course_utils.measure.advice.estimates import Measurements
from course_utils.measure.advice.gains import gain, pipeline
from course_utils.measure.advice.rules import Cause, oversubscribed
from course_utils.measure.advice.sentences import sentence
from course_utils.measure.advice.thresholds import (
    AS_GOOD,
    MOVING_MS,
    MUCH_MORE,
    NOTICED,
    QUICK_BATCH_S,
    RECEIVING_MS_PER_MB,
    SENDING_MS_PER_MB,
    SEVERAL_CORES,
    STARTING_S,
    WORTH,
)

AS_IT_IS = "leave the loader as it is: to read each batch by one access was tried, and is no faster"
WHOLE_BATCHES = ("one-access", "whole-batches-by-hand")  # what whole batches by one access tell of


@dataclass(frozen=True)
class Trial:
    """How a loop is predicted to run after a change, from a run of the changed loader."""

    advice: str  # its id
    change: Change
    turn_s: float  # a batch, its share of the start-up included
    applicable: bool = True  # without touching the dataset


class Remedy(NamedTuple):
    """What is wrong, and the one change to make."""

    advice: str  # the id of its row in the catalogue
    verdict: str  # one sentence
    change: str
    gain: float  # predicted speed of the loop, over its speed now
    at_most: bool = False  # the gain is that of removing the cause altogether
    how: Change | None = None  # where no code of dataset or step has to be changed


def candidates(m: Measurements, cause: Cause) -> list[tuple[Advice, Change]]:
    """Return what may help against `cause` and can be tried."""
    rows = applicable(m, cause)
    found = [(row, change) for row in rows for change in row.changes(m, cause)]
    alone = [both for both in found if both[0].id in ("all-cores", "one-thread")]
    return alone or found


def remedy(m: Measurements, cause: Cause, trials: Sequence[Trial] | None = None) -> Remedy:
    """Return what to change about `cause`: the best of what was tried, if it gains enough.

    A trial knows more than the model about the change that removes the cause altogether. If whole
    batches by one access gain nothing, samples by one access gain nothing either.
    Where nothing was tried (`trials` is None), more workers are advised if there are cores for them
    and they gain enough although their batches have to be moved. No workers are advised if moving a
    batch costs more than making it here.
    """
    advised = _advised(m, cause)
    if trials is None:
        return _untried(m, cause, advised)
    if not trials:
        return advised
    shortest_s = min(trial.turn_s for trial in trials)
    best = next(trial for trial in trials if trial.turn_s <= AS_GOOD * shortest_s)
    now_s = m.turn_s
    if oversubscribed(m):  # in fits: ten times as slow in one run as in the next
        now_s = min(now_s, m.paces.loader_s + m.start_up_share_s)
    gains = now_s / best.turn_s
    was_tried = any(trial.advice == "whole-batches" for trial in trials)
    was_tried &= advised.advice in WHOLE_BATCHES
    enough = WORTH if was_tried else max(WORTH, advised.gain / MUCH_MORE)
    if gains < enough and best.advice != advised.advice:
        if was_tried:
            return Remedy("leave-it", advised.verdict, AS_IT_IS, 1.0)
        return advised
    how = best.change if best.applicable else None
    return Remedy(best.advice, advised.verdict, best.change.words, max(1.0, gains), how=how)


def _advised(m: Measurements, cause: Cause) -> Remedy:
    """Return the preferred row of those that remove `cause` altogether."""
    row = next(row for row in applicable(m, cause) if row.removes)
    how = next(iter(row.changes(m, cause)), None)
    return Remedy(row.id, sentence(m, cause), row.says(m, cause), row.gain(m), row.at_most, how)


def _untried(m: Measurements, cause: Cause, advised: Remedy) -> Remedy:
    if m.setting.kind == "no DataLoader" and cause == "storage":
        which = f"`diagnose(loader, step)` tells which; if it is storage, {advised.change}"
        return advised._replace(change=which)
    alone_s = m.making_s + m.paces.step_s  # where the main process makes its batches, none is moved
    if m.setting.workers and cause == "collate or IPC" and m.turn_s > WORTH * alone_s:
        none = with_arguments(num_workers=0)
        return Remedy("no-workers", advised.verdict, none.words, m.turn_s / alone_s, how=none)
    if not m.setting.workers and m.making_s < QUICK_BATCH_S:
        return advised
    return _more_workers(m, cause, advised)


def _more_workers(m: Measurements, cause: Cause, advised: Remedy) -> Remedy:
    """Return the advice to take more workers if they have cores and gain enough, else `advised`.

    The fewest that gain nearly as much as the most do are advised.
    """
    rows = [row for row in applicable(m, cause) if row.id == "more-workers"]
    counts = [change.arguments["num_workers"] for _ in rows for change in more_workers(m, cause)]
    if m.fetching.computing_s > m.waiting_s:
        counts = sorted({min(count, _cores_left(m)) for count in counts})
    gains = {n: _gain_of_workers(m, n) for n in counts if n > m.setting.workers}
    if not gains:
        return advised
    most = max(gains.values())
    count = min(n for n, gained in gains.items() if AS_GOOD * gained >= most)
    if gains[count] < max(WORTH, advised.gain / MUCH_MORE):
        return advised
    change, epoch = with_arguments(num_workers=count), m.paces.epoch
    each_s = m.paces.start_up_s / m.setting.workers if m.setting.workers else STARTING_S
    if epoch and count * each_s > NOTICED * m.turn_s * epoch:
        change = and_lasting(change)
    return Remedy(
        "more-workers", advised.verdict, change.words, gains[count], at_most=True, how=change
    )


def _gain_of_workers(m: Measurements, count: int) -> float:
    """Return what the model says of `count` workers; what moving batches costs may not be known."""
    if m.setting.workers:
        return gain(m, num_workers=count)
    now, mb = pipeline(m), m.moving.batch_bytes / 1e6
    return gain(
        m,
        num_workers=count,
        collate_ms=now.collate_ms + MOVING_MS + SENDING_MS_PER_MB * mb,
        host_ms=now.host_ms + MOVING_MS + RECEIVING_MS_PER_MB * mb,
    )


def _cores_left(m: Measurements) -> int:
    """Return the cores that a step of several threads leaves; each of them waits for the others."""
    paces, cores = m.paces, m.setting.cores
    taken = paces.step_cpu_s / paces.step_s if paces.step_s else 0.0
    return round(cores - taken) if taken > SEVERAL_CORES else cores
