"""Measure the gain of a change: run the loop with and without it alternately."""

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
    """Median seconds per batch of a loop without and with a change."""

    now_s: float
    changed_s: float
    gains: tuple[float, ...]  # speed-up in each round

    @property
    def gain(self) -> float:
        """Speed-up of the loop."""
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
    """Run the loop with and without `change` alternately, and return the gain.

    The result is None if too few batches arrived in `seconds`.
    """
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
    """Return the start and end of an epoch, divided by its number of batches.

    Workers load nothing before the epoch begins. Workers that are not persistent also start before
    the first batch and end after the last. For persistent workers, a second epoch shows the
    remaining delay.
    """
    if not (m.paces.epoch and run.workers):
        return 0.0
    first_s = run.first_s + run.ending_s
    if has_persistent_workers(loader):
        first_s = min(first_again_s(loader), first_s)
    return max(0.0, first_s - run.batch_s) / m.paces.epoch


def starts_slowly(run: Run, m: Measurements, share: float) -> bool:
    """Return whether starting the workers takes more than `share` of an epoch."""
    epoch_s = m.iteration_s * (m.paces.epoch or 0)
    return bool(run.workers and epoch_s) and starting_s(run) > share * epoch_s


def has_persistent_workers(loader: Iterable[Any]) -> bool:
    """Return whether the workers of a loader are persistent."""
    return bool(getattr(data_loader_in(loader), "persistent_workers", False))
