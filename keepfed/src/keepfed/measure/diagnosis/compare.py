"""Try changes: run the loop without and with each of them, alternately.

The measurements do not show what moving batches between processes costs, how many workers the
storage and the cores can serve, or whether a dataset can return whole batches. Runs show this. They
alternate, because the speed of a shared machine varies by a fifth within seconds.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from keepfed.measure.advice import Change, Measurements, with_persistent_workers
from keepfed.measure.advice.thresholds import NOTICED, STARTING_S
from keepfed.measure.diagnosis.changes import applied, same
from keepfed.measure.diagnosis.loop import DiagnosedLoop
from keepfed.measure.diagnosis.run_estimates import has_persistent_workers, start_up_of
from keepfed.measure.diagnosis.runs import run_loop
from keepfed.measure.hook import data_loader_in

LEAST_S = 0.05  # s of a run without the start of its workers


@dataclass(frozen=True)
class LoopComparison:
    """Seconds per batch without and with a change in each round, with the start of epochs."""

    change: Change
    now_s: tuple[float, ...]
    changed_s: tuple[float, ...]
    repeats: bool = False  # whether each worker yields all samples instead of its share

    @property
    def gains(self) -> tuple[float, ...]:
        """Speed-up in each round."""
        return tuple(a / b for a, b in zip(self.now_s, self.changed_s, strict=False))

    @property
    def gain(self) -> float:
        """Speed-up of the loop."""
        return median(self.now_s) / median(self.changed_s)


def compare(
    loop: DiagnosedLoop, changes: Sequence[Change], m: Measurements, *, rounds: int, until: float
) -> list[LoopComparison | None]:
    """Run the loop without and with each change alternately.

    The step really runs. Workers become persistent if their start takes a noticeable share of an
    epoch.

    Args:
        loop: The loop.
        changes: Changes to try. If the time is short, the last ones are not tried.
        m: Measurements of the loop.
        rounds: Maximum number of times that each change runs.
        until: Time of `time.perf_counter` at which the last run should have ended.

    Returns:
        A comparison for each change, which is None if the loader does not support the change. The
        list is shorter, or empty, if there was no time for all changes.
    """
    if not has_persistent_workers(loop.loader):
        changes = [_lasting(change, m) for change in changes]
    variants = [_Variant(loop, change, m) for change in (None, *changes)]
    left_s = until - time.perf_counter()
    while len(variants) > 1 and sum(variant.start_s for variant in variants) > left_s:
        variants.pop()
    if len(variants) < 2:
        return []
    fit = int(left_s / sum(variant.start_s for variant in variants))
    # A process that has loaded may have threads, and should not fork workers afterwards.
    last = [variant for variant in variants if variant.loads_here and len(variants) > 2]
    turns = min(rounds, fit) * [variant for variant in variants if variant not in last] + last
    for number, variant in enumerate(turns):
        left_s = until - time.perf_counter()
        if left_s > variant.start_s:
            variant.run(left_s / (len(turns) - number))
    now_s = tuple(variants[0].batches_s)
    return [variant.compared(now_s) for variant in variants[1:]]


def _lasting(change: Change, m: Measurements) -> Change:
    """Return a change with persistent workers if they start slowly, compared with an epoch."""
    workers = change.arguments.get("num_workers", m.setting.workers)
    epoch_s = m.iteration_s * (m.paces.epoch or 0)
    slow = workers and epoch_s and _start_s(workers, m) > NOTICED * epoch_s
    lasts = "persistent_workers" in change.arguments
    return with_persistent_workers(change) if slow and not lasts else change


def _start_s(workers: int, m: Measurements) -> float:
    """Return the seconds that this many workers take to start, as far as it is known."""
    each_s = STARTING_S.get(m.setting.start_method, 0.0)
    if m.setting.workers:
        each_s = max(each_s, (m.paces.start_up_s or 0.0) / m.setting.workers)
    return workers * each_s


def _can_apply(loader: Any, change: Change) -> bool:
    """Return whether new workers can import the dataset's class.

    Only forked workers can use a class defined in a notebook. Others fail with an error message.
    """
    inner = data_loader_in(loader)
    context = getattr(inner, "multiprocessing_context", None) or multiprocessing
    elsewhere = type(getattr(inner, "dataset", None)).__module__ != "__main__"
    forked = context.get_start_method() == "fork"
    importable = elsewhere or forked or hasattr(sys.modules["__main__"], "__file__")
    return importable or not change.arguments.get("num_workers")


class _Variant:
    """The loop with one change, or without any."""

    def __init__(self, loop: DiagnosedLoop, change: Change | None, m: Measurements):
        arguments = change.arguments if change is not None else {}
        workers = arguments.get("num_workers", m.setting.workers)
        self.start_s = _start_s(workers, m) + LEAST_S
        self.loads_here = m.setting.workers > workers == 0
        self.loop, self.change, self.m = loop, change, m
        self.batches_s = list[float]()  # seconds per batch in each round
        self.repeats = False
        self.failed = change is not None and not _can_apply(loop.loader, change)
        self._first = list[Any]()  # the first two batches of a stream

    def compared(self, now_s: tuple[float, ...]) -> LoopComparison | None:
        """Return the comparison with `now_s`, the seconds per batch without a change."""
        if self.change is None or not (now_s and self.batches_s):
            return None
        return LoopComparison(self.change, now_s, tuple(self.batches_s), self.repeats)

    def run(self, seconds: float) -> None:
        """Run the loop once, and add its seconds per batch."""
        if self.failed:
            return
        self.loop.show(self.change.words if self.change else "the loop without a change")
        try:
            with applied(self.loop.loader, self.change) as changed:
                run = run_loop(changed, self._step, self.loop.synchronize, seconds=seconds)
                persistent = has_persistent_workers(changed)
        except Exception:  # an unknown dataset may raise anything with other arguments
            if self.change is None and not self.batches_s:
                raise
            self.failed = True
            return
        self.start_s = max(self.start_s, run.first_s() or 0.0)
        epoch = self.m.paces.epoch
        longer = epoch and max(run.lengths, default=0) > 1.5 * epoch
        equal = run.workers > 1 and len(self._first) > 1 and same(*self._first)
        self.repeats |= self.m.setting.kind == "stream" and bool(longer or equal)
        self._first.clear()  # batches of workers hold shared memory
        if run.steady:
            start_s = start_up_of([run], persistent)
            if start_s is None:  # no second epoch: only a stream does work at its start
                start_s = self.m.paces.filling_s if self.m.setting.kind == "stream" else 0.0
            self.batches_s.append(run.batch_s + (start_s / epoch if epoch else 0.0))

    def _step(self, batch: Any) -> Any:
        if len(self._first) < 2:
            self._first.append(batch)
        return self.loop.step(batch)
