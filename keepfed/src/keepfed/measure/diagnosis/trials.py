"""Try the changes that need no new code: run the loader with other arguments and time it.

The measurements do not show what moving batches between processes costs, how many workers the
storage and the cores can serve, or whether a dataset can return whole batches. Trials show this.
They replace the step by a stand-in that computes and waits for the same time, so that the model
is not trained more than necessary. If a change seems to gain little, it runs again, alternately
with the unchanged loader, because the speed of a shared machine varies by a fifth within seconds.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from keepfed.measure.advice import (
    Advice,
    Cause,
    Change,
    Measurements,
    Trial,
    candidates,
    with_persistent_workers,
)
from keepfed.measure.advice.thresholds import DOUBTFUL, NOTICED
from keepfed.measure.diagnosis.changes import applied, same
from keepfed.measure.diagnosis.proof import (
    first_share_s,
    has_persistent_workers,
    measure_gain,
    starts_slowly,
)
from keepfed.measure.diagnosis.run import Run
from keepfed.measure.diagnosis.run_estimates import cpu_s
from keepfed.measure.diagnosis.runs import Step, run_loop
from keepfed.measure.hook import data_loader_in

AGAIN = 3.0  # duration of a repeated trial in units of the first one, for all rounds together
OVERSLEPT_S = 60e-6  # s that time.sleep oversleeps at least


def run_trials(
    loader: Iterable[Any],
    step: Step,
    m: Measurements,
    cause: Cause,
    *,
    alone: Run,
    seconds: float,
    synchronize: Callable[[], Any] | None = None,
) -> list[Trial]:
    """Run the loader for about `seconds` with each change that may help.

    A trial with an inconclusive gain takes up to four times as long.
    """
    if m.setting.kind != "no DataLoader":
        # A custom loader is tried with a thread, which shares the interpreter with the real step.
        step, synchronize = StandIn(m), None
    trying = _TrialRunner(loader, step, m, alone, seconds, synchronize)
    trials = (trying.trial(row, change) for row, change in candidates(m, cause))
    return [trial for trial in trials if trial is not None]


class _TrialRunner:
    """Tries changes of one loop."""

    def __init__(
        self,
        loader: Iterable[Any],
        step: Step,
        m: Measurements,
        alone: Run,
        seconds: float,
        synchronize: Callable[[], Any] | None,
    ):
        self.loader, self.step, self.m, self.alone = loader, step, m, alone
        self.seconds, self.synchronize = seconds, synchronize

    def trial(self, row: Advice, change: Change) -> Trial | None:
        """Return the result of a trial, or None if the loader does not support the change."""
        if change.arguments.get("num_workers") and not _workers_can_import(self.loader):
            return None
        m, stream = self.m, self.m.setting.kind == "stream"
        try:
            change, run, iteration_s = self._tried(change)
            if run is None:
                return None
            if self._is_doubtful(m.iteration_s / iteration_s):
                seconds = AGAIN * self.seconds
                proof = measure_gain(
                    self.loader, self.step, m, change, seconds=seconds, synchronize=self.synchronize
                )
                iteration_s = m.iteration_s / proof.gain if proof else iteration_s
        except Exception:  # an unknown dataset may raise anything with other arguments
            return None
        repeats = stream and _repeats(run, self.alone)
        return Trial(row.id, change, iteration_s, applicable=not repeats)

    def _tried(self, change: Change) -> tuple[Change, Run | None, float]:
        """Return the change, its run, and the predicted seconds per batch in long training.

        Workers become persistent if their start takes a noticeable share of an epoch.
        """
        m = self.m
        with applied(self.loader, change) as changed:
            run = run_loop(
                changed,
                self.step,
                seconds=self.seconds,
                keep=m.setting.kind == "stream",
                synchronize=self.synchronize,
            )
            if not run.steady:
                return change, None, 0.0
            if has_persistent_workers(changed) or not starts_slowly(run, m, NOTICED):
                return change, run, predicted_s(m, run) + first_share_s(changed, run, m)
        persistent = with_persistent_workers(change)
        with applied(self.loader, persistent) as changed:
            persistent_s = predicted_s(m, run) + first_share_s(changed, run, m)
        return persistent, run, persistent_s

    def _is_doubtful(self, gain: float) -> bool:
        """Return whether to repeat a trial with this gain.

        A trial of a multi-threaded step is not repeated, because the stand-in has one thread.
        """
        least, most = DOUBTFUL
        return (self.m.paces.step_cpu_s or 0.0) <= self.m.paces.step_s and least <= gain < most


def _workers_can_import(loader: Iterable[Any]) -> bool:
    """Return whether workers can import the dataset's class.

    Only forked workers can use a class defined in a notebook. Others fail with an error message.
    """
    inner = data_loader_in(loader)
    context = getattr(inner, "multiprocessing_context", None) or multiprocessing
    elsewhere = type(getattr(inner, "dataset", None)).__module__ != "__main__"
    forked = context.get_start_method() == "fork"
    return bool(elsewhere or forked or hasattr(sys.modules["__main__"], "__file__"))


class StandIn:
    """A replacement for a step that computes in one thread and waits for the same time."""

    def __init__(self, m: Measurements):
        """Copy the times of the step alone from `m`."""
        self.whole_s, self.cpu_s = m.paces.step_s, min(m.paces.step_cpu_s or 0.0, m.paces.step_s)

    def __call__(self, batch: Any) -> None:
        """Compute and sleep for the time of one step."""
        end, computed = time.perf_counter() + self.whole_s, time.thread_time() + self.cpu_s
        while time.thread_time() < computed:
            pass
        time.sleep(max(0.0, end - time.perf_counter() - OVERSLEPT_S))


def predicted_s(m: Measurements, run: Run) -> float:
    """Return the predicted seconds per iteration with the real step.

    A multi-threaded step needs cores that its stand-in leaves to the workers.
    """
    more_s = max(0.0, (m.paces.step_cpu_s or 0.0) - m.paces.step_s)
    return max(run.batch_s, (cpu_s(run) + more_s) / m.setting.cores if more_s else 0.0)


def _repeats(run: Run, alone: Run) -> bool:
    """Return whether each worker yields all samples instead of its share."""
    kept, run.kept = run.kept, []
    if run.lengths and alone.lengths and max(run.lengths) > 1.5 * max(alone.lengths):
        return True
    return len(kept) > 1 and run.workers > 1 and same(kept[0], kept[1])
