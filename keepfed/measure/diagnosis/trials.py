"""Try what needs no change of code: run the loader with other arguments, and see how fast it is.

The figures do not tell what moving batches between processes costs, how many workers a storage or
the cores bear, and whether a dataset serves whole batches, so that is tried. A stand-in computes
and waits as long as the step does, so that the model is trained no more than necessary. A change
that seems to gain little is run again, in turns with the loader as it is: a machine that others use
as well is a fifth slower in one second than in the next.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
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

AGAIN = 3.0  # times the seconds of a trial, for all rounds together
OVERSLEPT_S = 60e-6  # by so much at least time.sleep oversleeps
SHARES = "where __iter__ gives each worker a share of its own (get_worker_info)"


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
    """Run the loader with each change that may help, each for about `seconds`.

    A change of which that does not tell whether it gains enough takes up to four times as long.
    """
    if m.setting.kind != "no DataLoader":
        # how a thread and the step share an interpreter, only the step itself tells
        step, synchronize = StandIn(m), None
    trying = _Trying(loader, step, m, alone, seconds, synchronize)
    trials = (trying.trial(row, change) for row, change in candidates(m, cause))
    return [trial for trial in trials if trial is not None]


class _Trying:
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
        """Return what a trial says, None of a change that this loader does not bear."""
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
        except Exception:  # whatever a stranger's dataset does with indices, workers or noise
            return None
        repeats = stream and _repeats(run, self.alone)
        if stream and run.workers > max(1, m.setting.workers):
            change = replace(change, words=f"{change.words}, {SHARES}")
        return Trial(row.id, change, iteration_s, applicable=not repeats)

    def _tried(self, change: Change) -> tuple[Change, Run | None, float]:
        """Return the change, how a loop with it ran, and the seconds of a batch in long training.

        Workers whose start would be noticed are to last.
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
        lasting = with_persistent_workers(change)
        with applied(self.loader, lasting) as changed:
            lasting_s = predicted_s(m, run) + first_share_s(changed, run, m)
        return lasting, run, lasting_s

    def _is_doubtful(self, gain: float) -> bool:
        """Tell whether a change is to be tried again: what stands in has no second thread."""
        least, most = DOUBTFUL
        return self.m.paces.step_cpu_s <= self.m.paces.step_s and least <= gain < most


def _workers_can_import(loader: Iterable[Any]) -> bool:
    """Tell whether workers can import the dataset's class: one of a notebook dies with a message.

    Only a forked worker has what was defined in `__main__` where that is no file.
    """
    inner = data_loader_in(loader)
    context = getattr(inner, "multiprocessing_context", None) or multiprocessing
    elsewhere = type(getattr(inner, "dataset", None)).__module__ != "__main__"
    forked = context.get_start_method() == "fork"
    return bool(elsewhere or forked or hasattr(sys.modules["__main__"], "__file__"))


class StandIn:
    """Stands in for a step: computes in one thread and waits for as long as the step did."""

    def __init__(self, m: Measurements):
        """Take the times of the step alone."""
        self.whole_s, self.cpu_s = m.paces.step_s, min(m.paces.step_cpu_s, m.paces.step_s)

    def __call__(self, batch: Any) -> None:
        """Let the time pass that a step takes."""
        end, computed = time.perf_counter() + self.whole_s, time.thread_time() + self.cpu_s
        while time.thread_time() < computed:
            pass
        time.sleep(max(0.0, end - time.perf_counter() - OVERSLEPT_S))


def predicted_s(m: Measurements, run: Run) -> float:
    """Return what a turn takes that took so long with a stand-in for the step.

    A step of several threads needs cores which its stand-in leaves to the workers.
    """
    more_s = max(0.0, m.paces.step_cpu_s - m.paces.step_s)
    return max(run.batch_s, (cpu_s(run) + more_s) / m.setting.cores if more_s else 0.0)


def _repeats(run: Run, alone: Run) -> bool:
    """Tell whether each worker yields all samples instead of a share of them."""
    kept, run.kept = run.kept, []
    if run.lengths and alone.lengths and max(run.lengths) > 1.5 * max(alone.lengths):
        return True
    return len(kept) > 1 and run.workers > 1 and same(kept[0], kept[1])
