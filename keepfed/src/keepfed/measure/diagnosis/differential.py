"""Find out why a training loop waits, and recommend one change.

    print(diagnose(loader, step))

`three_runs` runs the loader alone, the step alone, and both together. `run_estimates` turns these
runs into measurements, `measure.advice` finds the cause and recommends a change, `compare` tries
changes, and `report` prints the result.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from keepfed.measure.advice import Cause, Change, Measurements, Trial, candidates, judge, recommend
from keepfed.measure.diagnosis.changes import applied
from keepfed.measure.diagnosis.compare import compare
from keepfed.measure.diagnosis.loop import DiagnosedLoop, opened
from keepfed.measure.diagnosis.report import Diagnosis
from keepfed.measure.diagnosis.run_estimates import estimate, may_be_oversubscribed, one_thread_gain
from keepfed.measure.diagnosis.runs import run_loop
from keepfed.measure.diagnosis.three_runs import ThreeRuns, three_runs
from keepfed.measure.stacks import OutsideSampler, StackSampler, read_lines

RUNS, ONE_THREAD, TRIALS, PROOF = 0.7, 0.08, 0.3, 0.5  # shares of the time
TRIAL_ROUNDS, PROOF_ROUNDS = 2, 3


def diagnose(
    loader: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    seconds: float = 40.0,
    synchronize: Callable[[], Any] | None = None,
    prove: bool = False,
) -> Diagnosis:
    """Find out what a training loop waits for, and recommend one change.

    The loader is restored afterwards, and all new worker processes end. The step really trains
    the model, so use a copy of the model if you want to keep it unchanged.

    Args:
        loader: A `DataLoader` of any kind, or any object that yields batches each time it is
            iterated.
        step: Function that uploads one batch and trains on it.
        seconds: Approximate duration of the diagnosis, including the start-up of workers. If
            there is no time to try a change, its gain is predicted.
        synchronize: Function that waits until the device has finished its work. Only needed for a
            device that torch.accelerator does not support, or not CUDA with torch before 2.9.
        prove: If True, also measure the gain of a change that does not need your code. The loop
            runs with and without the change alternately, which takes half as long again.

    Returns:
        The diagnosis, which displays itself as text or HTML.

    Raises:
        KeepfedError: If the loop cannot be diagnosed. The message explains how to fix it.
            Exceptions of the dataset or the step are not caught.
    """
    begun = time.perf_counter()
    with (
        opened(loader, step, seconds, synchronize) as loop,
        TemporaryDirectory(prefix="keepfed-", ignore_cleanup_errors=True) as folder,
    ):
        with OutsideSampler(Path(folder), os.getpid()) as outside:
            stacks = StackSampler(Path(folder), "diagnose", outside.reader)
            runs = three_runs(loop, RUNS * seconds, stacks)
        m = estimate(loop.loader, runs)
        m = replace(m, lines=read_lines(Path(folder), "diagnose"))
        m = _with_one_thread(loop, runs, m)
        cause = judge(m)
        until = min(begun + seconds, time.perf_counter() + TRIALS * seconds)
        finding = recommend(m, cause, _trials(loop, m, cause, until))
        proof = None
        if prove and finding.how is not None:
            until = begun + (1 + PROOF) * seconds
            proofs = compare(loop, [finding.how], m, rounds=PROOF_ROUNDS, until=until)
            proof = next(iter(proofs), None)
    runs.together.mark_steps()
    return Diagnosis(finding, m, runs.together.trace, proof, asked_to_prove=prove)


def _with_one_thread(loop: DiagnosedLoop, runs: ThreeRuns, m: Measurements) -> Measurements:
    """Return the measurements with the gain of one thread, if other threads compute much."""
    if not may_be_oversubscribed(runs.alone):
        return m
    loop.show("the loader alone, with one thread")
    with applied(loop.loader, Change("", "one thread")) as changed:
        run = run_loop(changed, lambda batch: None, seconds=ONE_THREAD * loop.seconds)
    gain = one_thread_gain(runs.alone, run)
    return replace(m, fetching=replace(m.fetching, one_thread_gain=gain))


def _trials(loop: DiagnosedLoop, m: Measurements, cause: Cause, until: float) -> list[Trial] | None:
    """Return the trials of the changes that may help, or None if there is no time for any."""
    rows = candidates(m, cause)
    changes = [change for _, change in rows]
    comparisons = compare(loop, changes, m, rounds=TRIAL_ROUNDS, until=until)
    if rows and not comparisons and m.setting.kind != "no DataLoader":
        return None
    return [
        Trial(row.id, tried.change, m.iteration_s / tried.gain, applicable=not tried.repeats)
        for (row, _), tried in zip(rows, comparisons, strict=False)
        if tried is not None
    ]
