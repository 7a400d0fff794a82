"""Measure what a change gains: whole epochs of the loop as it is and changed, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Any

from keepfed.measure.advice import Change, Measurements
from keepfed.measure.diagnosis.changes import applied
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.diagnosis.run_estimates import starting_s
from keepfed.measure.diagnosis.runs import Step, first_again_s, run_loop
from keepfed.measure.hook import data_loader_in

PROOF_ROUNDS = 3


@dataclass(frozen=True)
class Proof:
    """A loop as it is and with a change, measured in turns; seconds a batch, in median."""

    now_s: float
    changed_s: float
    gains: tuple[float, ...]  # of the rounds, times as fast

    @property
    def gain(self) -> float:
        """How many times as fast the loop was."""
        return self.now_s / self.changed_s


def measure_gain(
    loader: Iterable[Any],
    step: Step,
    m: Measurements,
    change: Change,
    *,
    seconds: float,
    synchronize: Callable[[], Any] | None = None,
) -> Proof | None:
    """Run the loop as it is and changed, in turns; None if too few batches came in time."""
    share = seconds / 2 / PROOF_ROUNDS
    now, later = list[float](), list[float]()

    def iteration_s(loader: Iterable[Any]) -> float | None:
        run = run_loop(loader, step, seconds=share, whole_epochs=True, synchronize=synchronize)
        if run.later_epochs_s is not None:
            return run.later_epochs_s
        return run.batch_s + first_share_s(loader, run, m) if run.steady else None

    for _ in range(PROOF_ROUNDS):
        now_s = iteration_s(loader)
        with applied(loader, change) as changed:
            later_s = iteration_s(changed)
        if now_s is None or later_s is None:
            return None
        now.append(now_s)
        later.append(later_s)
    gains = tuple(a / b for a, b in zip(now, later, strict=True))
    return Proof(median(now), median(later), gains)


def first_share_s(loader: Iterable[Any], run: Run, m: Measurements) -> float:
    """Return a batch's share of the wait for the first one of an epoch, beyond a turn.

    The workers load nothing before the epoch begins. Unless they last, they start first, and end
    after the last batch; if they last, a second epoch of theirs tells what they do again.
    """
    if not (m.paces.epoch and run.workers):
        return 0.0
    first_s = run.first_s + run.ending_s
    if has_persistent_workers(loader):
        first_s = min(first_again_s(loader), first_s)
    return max(0.0, first_s - run.batch_s) / m.paces.epoch


def starts_slowly(run: Run, m: Measurements, share: float) -> bool:
    """Tell whether starting the workers takes more than `share` of an epoch."""
    epoch_s = m.iteration_s * (m.paces.epoch or 0)
    return bool(run.workers and epoch_s) and starting_s(run) > share * epoch_s


def has_persistent_workers(loader: Iterable[Any]) -> bool:
    """Tell whether the workers of a loader last from epoch to epoch."""
    return bool(getattr(data_loader_in(loader), "persistent_workers", False))
