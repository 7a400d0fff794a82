"""Choose the one change to recommend, from the catalog and from the trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from keepfed.measure.advice.catalog import ROWS, Advice, applicable
from keepfed.measure.advice.change import Change, with_arguments, with_persistent_workers
from keepfed.measure.advice.estimates import Measurements
from keepfed.measure.advice.finding import LoopFinding
from keepfed.measure.advice.gains import gain, pipeline
from keepfed.measure.advice.rules import Cause, competes_for_cores
from keepfed.measure.advice.sentences import sentence
from keepfed.measure.advice.thresholds import (
    CODE_CHANGE_FACTOR,
    MOVING_MS,
    NEARLY_BEST,
    NOTICED,
    QUICK_BATCH_S,
    RECEIVING_MS_PER_MB,
    SENDING_MS_PER_MB,
    SEVERAL_CORES,
    STARTING_S,
    WORTHWHILE_GAIN,
)
from keepfed.measure.advice.where import lines_of

NOT_FASTER = "leave the loader as it is: reading each batch in one call was tried and is not faster"
ONCE = "if the program creates the loader once, and not again for each epoch"
SHARES = "if __iter__ gives each worker its own share (get_worker_info)"
# Advice that a trial of whole batches confirms or refutes
WHOLE_BATCHES = ("one-access", "whole-batches-by-hand")


@dataclass(frozen=True)
class Trial:
    """The predicted speed of a loop with a change, from a run of the changed loader."""

    advice: str  # id of the row in the catalog
    change: Change
    iteration_s: float  # seconds per batch, including its share of the start-up
    applicable: bool = True  # whether the dataset works unchanged


def candidates(m: Measurements, cause: Cause) -> list[tuple[Advice, Change]]:
    """Return the changes that may fix `cause` and can be tried."""
    rows = applicable(m, cause)
    changes = [(row, change) for row in rows for change in row.tries(m, cause)]
    alone = [pair for pair in changes if pair[0].id in ("all-cores", "one-thread")]
    return alone or changes


def recommend(m: Measurements, cause: Cause, trials: Sequence[Trial] | None = None) -> LoopFinding:
    """Return the recommended change for `cause`: the best trial, if it gains enough.

    A trial takes precedence over the model. If reading whole batches brought no gain, reading
    samples with `__getitems__` is not recommended either. Without trials (`trials` is None), the
    model predicts what fewer or more workers would bring.
    """
    advised, tried = _advised(m, cause), trials is not None
    trials = _predicted(m, cause) if trials is None else trials
    if not trials:
        return advised
    shortest_s = min(trial.iteration_s for trial in trials)
    best = next(trial for trial in trials if trial.iteration_s <= NEARLY_BEST * shortest_s)
    now_s = m.iteration_s
    # One run with competing threads can be ten times slower than the next.
    if competes_for_cores(m) and m.paces.loader_s is not None:
        now_s = min(now_s, m.paces.loader_s + m.start_up_share_s)
    gains = now_s / best.iteration_s
    # The trial of whole batches has measured the gain that the model can only bound.
    refutes = advised.id in WHOLE_BATCHES and any(t.advice == "whole-batches" for t in trials)
    # A change of the code must promise much more than one of the arguments.
    code_gain = 0.0 if refutes else (advised.gain or 1.0) / CODE_CHANGE_FACTOR
    if gains < max(WORTHWHILE_GAIN, code_gain) and best.advice != advised.id:
        as_it_is = replace(advised, id="leave-it", change=NOT_FASTER, gain=None, how=None, entry="")
        return as_it_is if refutes else advised
    return replace(
        advised,
        id=best.advice,
        change=_words(m, best.change),
        how=best.change if best.applicable else None,
        gain=max(1.0, gains),
        at_most=not tried,
        entry=ROWS[best.advice].entry,
    )


def _advised(m: Measurements, cause: Cause) -> LoopFinding:
    """Return the preferred row that removes `cause` completely, as far as the model knows."""
    row = next(row for row in applicable(m, cause) if row.gain or not row.changes)
    change = row.changes(m, cause)[0] if row.changes else None
    words = row.words(m) if callable(row.words) else row.words
    return LoopFinding(
        id=row.id,
        cause=cause,
        measured=sentence(m, cause),
        lines=lines_of(m, cause),
        change=_words(m, change) if change else words,
        how=change,
        gain=row.gain(m) if row.gain else None,
        at_most=change is None,
        entry=row.entry,
    )


def _predicted(m: Measurements, cause: Cause) -> list[Trial]:
    """Return what the model predicts for no workers, if moving batches costs much, or for more."""
    setting = m.setting
    alone_s = m.making_s + m.paces.step_s  # per batch, if the main process loads it
    if setting.workers and cause == "collate or IPC" and m.iteration_s > WORTHWHILE_GAIN * alone_s:
        return [Trial("no-workers", with_arguments(num_workers=0), alone_s)]
    row = ROWS["more-workers"]
    quick = not setting.workers and m.making_s < QUICK_BATCH_S
    if quick or row not in applicable(m, cause):
        return []
    counts = {change.arguments["num_workers"] for change in row.tries(m, cause)}
    if m.fetching.computing_s > m.waiting_s:
        counts = {min(count, _cores_left(m)) for count in counts}
    changes = [_change_to_workers(m, count) for count in sorted(counts) if count > setting.workers]
    return [Trial(row.id, change, _with_workers_s(m, change)) for change in changes]


def _words(m: Measurements, change: Change) -> str:
    """Return the words of a change, with the conditions that were not measured."""
    conditions = [change.words]
    more = change.arguments.get("num_workers", 0) > max(1, m.setting.workers)
    if more and m.setting.kind == "stream":
        conditions.append(SHARES)
    if change.arguments.get("persistent_workers") and m.setting.loaders_made is None:
        conditions.append(ONCE)
    return ", ".join(conditions)


def _change_to_workers(m: Measurements, count: int) -> Change:
    """Return the change to `count` workers, persistent if their start takes long in an epoch."""
    change, epoch = with_arguments(num_workers=count), m.paces.epoch
    starts_s = count * _worker_start_s(m)
    again = epoch and m.paces.epochs != 1 and starts_s > NOTICED * m.iteration_s * epoch
    return with_persistent_workers(change) if again else change


def _with_workers_s(m: Measurements, change: Change) -> float:
    """Return the predicted time per batch with more workers, with default costs of moving."""
    count, moved = change.arguments["num_workers"], dict[str, float]()
    if not m.setting.workers:
        now, mb = pipeline(m), m.moving.batch_bytes / 1e6
        moved["collate_ms"] = now.collate_ms + MOVING_MS + SENDING_MS_PER_MB * mb
        moved["host_ms"] = now.host_ms + MOVING_MS + RECEIVING_MS_PER_MB * mb
    iteration_s = m.iteration_s / gain(m, num_workers=count, **moved)
    if epoch := m.paces.epoch:
        starts = float(count)  # worker starts per epoch
        if change.arguments.get("persistent_workers"):
            starts = count / m.paces.epochs if m.paces.epochs else 0.0
        iteration_s += (starts - m.setting.workers) * _worker_start_s(m) / epoch
    return max(iteration_s, 1e-9)


def _worker_start_s(m: Measurements) -> float:
    """Return the seconds that a worker takes to start and to end."""
    setting = m.setting
    if setting.workers:
        return (m.paces.start_up_s or 0.0) / setting.workers
    return STARTING_S.get(setting.start_method, STARTING_S["fork"])


def _cores_left(m: Measurements) -> int:
    """Return the cores that a multi-threaded step leaves free for the workers.

    Workers on the same cores would delay the whole step, because its threads wait for each other.
    """
    paces, cores = m.paces, m.setting.cores
    taken = (paces.step_cpu_s or 0.0) / paces.step_s if paces.step_s else 0.0
    return round(cores - taken) if taken > SEVERAL_CORES else cores
