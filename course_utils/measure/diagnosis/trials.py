"""Try what needs no change of code: run the loader with other arguments, and see how fast it is.

What moving batches between processes costs, how many workers a storage or the cores bear and
whether a dataset serves whole batches cannot be told from its figures: it is tried. So that the
step trains no more than it must, something stands in for it that computes and waits as long.
What seems to gain little is run again, in turns with the loader as it is: a machine that others
use as well is a fifth slower in one second than in the next.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from course_utils.measure.diagnosis.changes import (
    Change,
    and_lasting,
    applied,
    same,
    with_arguments,
)
from course_utils.measure.diagnosis.estimates import Measurements
from course_utils.measure.diagnosis.run_estimates import cpu_s, starting_s
from course_utils.measure.diagnosis.runs import Run, Step, run_loop
from course_utils.measure.diagnosis.verdict import Cause, oversubscribed, shares_too_few_cores
from course_utils.measure.hook import data_loader_in

MOST_WORKERS = 16
PROOF_ROUNDS = 3
DOUBTFUL = 1.1, 1.5  # times as fast: one run does not tell whether the change is worth its name
AGAIN = 3.0  # times the seconds of a trial, for all rounds together
OVERSLEPT_S = 60e-6  # by so much at least time.sleep oversleeps
NOTICED = 0.1  # share of a turn from which a start-up is worth a word
SHARES = "where __iter__ gives each worker a share of its own (get_worker_info)"

WHOLE = (
    "read each batch by one access: "
    "DataLoader(dataset, sampler=loader.batch_sampler, batch_size=None)"
)


@dataclass(frozen=True)
class Trial:
    """How a loop is predicted to run after a change, from a run of the changed loader."""

    change: Change
    turn_s: float  # a batch, its share of the start-up included
    applicable: bool = True  # without touching the dataset


def candidates(m: Measurements, cause: Cause) -> list[Change]:
    """Return the changes that may help against `cause`, as far as they can be tried."""
    if cause not in ("storage", "CPU", "collate or IPC", "uneven"):
        return []
    if m.setting.kind == "no DataLoader":
        words = "load ahead in a thread: for batch in ThreadPrefetcher(loader), which is in "
        return [Change(f"{words}course_utils.loading.prefetch", "thread ahead")]
    if shares_too_few_cores(m):
        return [Change(unpinned(m), "all cores")]
    if oversubscribed(m):
        return [Change(pools_to_one(m), "one thread")]
    found = []
    moves = m.setting.workers and m.moving.sending_s > m.making_s
    if m.setting.kind == "batches of samples" and cause != "uneven":
        found.append(Change(WHOLE, "whole batches"))
    if m.setting.workers and cause == "collate or IPC":
        found.append(with_arguments(num_workers=0))
    if m.setting.workers > 1 and cause == "uneven":
        found.append(with_arguments(in_order=False))
    if not moves and (more := _more_workers(m, cause)) > m.setting.workers:
        found.append(with_arguments(num_workers=more))
    return found


def unpinned(m: Measurements) -> str:
    """Return how workers come to the cores that there are for them."""
    return f"let the workers use all {m.setting.cores} cores: take away what pins them"


def pools_to_one(m: Measurements) -> str:
    """Return how the thread pools of this loop are limited to one thread."""
    if m.setting.workers:
        return "thread pools to one: worker_init_fn=course_utils.loading.workers.worker_init"
    return "thread pools to one: OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1"


def _more_workers(m: Measurements, cause: Cause) -> int:
    """Return how many workers keep up with the step, as far as cores or patience go."""
    most = m.setting.cores if m.fetching.computing_s > m.waiting_s else MOST_WORKERS
    if cause == "uneven":
        return min(max(2, 2 * m.setting.workers), most)
    wanted = math.ceil(m.making_s / m.paces.step_s) + 1 if m.paces.step_s else most
    enough: int = 2 ** math.ceil(math.log2(wanted))
    return min(max(enough, min(2, most)), most)


def try_out(
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
    changes = candidates(m, cause)
    if (
        m.setting.kind != "no DataLoader"
    ):  # how a thread and the step share an interpreter, only it tells
        step, synchronize = StandIn(m), None

    def run_with(change: Change) -> Run:
        with applied(loader, change) as changed:
            keep = m.setting.kind == "stream"
            return run_loop(changed, step, seconds=seconds, keep=keep, synchronize=synchronize)

    def again(change: Change) -> Proof | None:
        return prove_it(loader, step, m, change, seconds=AGAIN * seconds, synchronize=synchronize)

    trials = (_try(loader, run_with, again, m, change, alone) for change in changes)
    return [trial for trial in trials if trial is not None]


def _try(
    loader: Iterable[Any],
    run_with: Callable[[Change], Run],
    again: Callable[[Change], Proof | None],
    m: Measurements,
    change: Change,
    alone: Run,
) -> Trial | None:
    """Return what a trial says, None of a change that this loader does not bear."""
    if change.arguments.get("num_workers") and not _found_by_workers(loader):
        return None
    try:
        run = run_with(change)
    except Exception:  # whatever a stranger's dataset does with indices or workers
        return None
    repeats = m.setting.kind == "stream" and _repeats(run, alone)
    run.kept.clear()
    if not run.steady:
        return None
    turn_s = predicted_s(m, run)
    lasting = _lasting(loader)
    if (
        m.paces.epoch
        and run.workers
        and not lasting
        and starting_s(run) > NOTICED * turn_s * m.paces.epoch
    ):
        change, lasting = and_lasting(change), True
    turn_s += _first_s(run, m, lasting)
    least, most = DOUBTFUL
    alike = (
        m.paces.step_cpu_s <= m.paces.step_s
    )  # as what stands in for it, which has no second thread
    if alike and least <= m.turn_s / turn_s < most:
        try:
            proof = again(change)
        except Exception:  # as above: noise that was no different in the first run, for one
            return None
        turn_s = m.turn_s / proof.gain if proof else turn_s
    if m.setting.kind == "stream" and run.workers > max(1, m.setting.workers):
        change = replace(change, words=f"{change.words}, {SHARES}")
    return Trial(change, turn_s, applicable=not repeats)


def _lasting(loader: Iterable[Any]) -> bool:
    return bool(getattr(data_loader_in(loader), "persistent_workers", False))


def _first_s(run: Run, m: Measurements, lasting: bool) -> float:
    """Return a batch's share of the wait for the first one of an epoch, beyond a turn.

    The workers load nothing before the epoch begins; unless they are `lasting`, they start first,
    and end after the last batch.
    """
    if not (m.paces.epoch and run.workers):
        return 0.0
    first_s = run.first_s - starting_s(run) if lasting else run.first_s + run.ending_s
    return max(0.0, first_s - run.batch_s) / m.paces.epoch


def _found_by_workers(loader: Iterable[Any]) -> bool:
    """Tell whether workers can import the dataset's class: one of a notebook dies with a message.

    Only a forked worker has what was defined in `__main__` where that is no file.
    """
    inner = data_loader_in(loader)
    context = getattr(inner, "multiprocessing_context", None) or multiprocessing
    elsewhere = type(getattr(inner, "dataset", None)).__module__ != "__main__"
    forked = context.get_start_method() == "fork"
    return bool(elsewhere or forked or hasattr(sys.modules["__main__"], "__file__"))


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


def prove_it(
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

    def turn_s(loader: Iterable[Any]) -> float:
        run = run_loop(loader, step, seconds=share, synchronize=synchronize)
        return run.batch_s + _first_s(run, m, _lasting(loader)) if run.steady else math.nan

    for _ in range(PROOF_ROUNDS):
        now.append(turn_s(loader))
        with applied(loader, change) as changed:
            later.append(turn_s(changed))
        if math.isnan(now[-1] + later[-1]):
            return None
    gains = tuple(a / b for a, b in zip(now, later, strict=True))
    return Proof(median(now), median(later), gains)


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
    beside_s = max(0.0, m.paces.step_cpu_s - m.paces.step_s)
    return max(run.batch_s, (cpu_s(run) + beside_s) / m.setting.cores if beside_s else 0.0)


def _repeats(run: Run, alone: Run) -> bool:
    """Tell whether each worker yields all samples instead of a share of them."""
    if run.lengths and alone.lengths and max(run.lengths) > 1.5 * max(alone.lengths):
        return True
    return len(run.kept) > 1 and run.workers > 1 and same(run.kept[0], run.kept[1])
