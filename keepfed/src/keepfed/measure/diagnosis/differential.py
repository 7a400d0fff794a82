"""Find out why a training loop waits: run the loader alone, the step alone, and both together.

    print(diagnose(loader, step))

This module decides what to run and for how long. `runs` executes the runs, `run_estimates` turns
them into measurements, `measure.advice` finds the cause and recommends a change, `trials` tries
it, and `report` prints the result.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from keepfed.errors import KeepfedError, required
from keepfed.measure.advice import Change, judge, recommend
from keepfed.measure.diagnosis.changes import applied
from keepfed.measure.diagnosis.proof import measure_gain
from keepfed.measure.diagnosis.report import Diagnosis
from keepfed.measure.diagnosis.run_estimates import check_batches, estimate, may_be_oversubscribed
from keepfed.measure.diagnosis.runs import run_loop, run_step
from keepfed.measure.diagnosis.trials import run_trials
from keepfed.measure.hook import data_loader_in, end
from keepfed.measure.stacks import StackSampler, read_lines

ALONE, STEP, TOGETHER, TRIAL = 0.3, 0.15, 0.3, 0.08  # shares of the time
PROOF = 0.5  # additional share of the time
HANGS_S = 60  # s without a batch after which a loader without a timeout is canceled


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
        seconds: Approximate duration of the diagnosis, including the start-up of workers.
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
    _check(loader, step, seconds)
    with (
        preserved(loader),
        _explain_worker_errors(),
        TemporaryDirectory(prefix="keepfed-", ignore_cleanup_errors=True) as folder,
    ):
        stacks = StackSampler(Path(folder), "diagnose")
        # Run the step on the first batch immediately, so that an error in the step shows up early.
        alone = run_loop(
            loader, None, seconds=ALONE * seconds, keep=True, first=step, stacks=stacks
        )
        check_batches(alone, seconds)
        one_thread = None
        if may_be_oversubscribed(alone):
            with applied(loader, Change("", "one thread")) as changed:
                one_thread = run_loop(changed, None, seconds=TRIAL * seconds)
        alone_step = run_step(
            step, alone.kept, seconds=STEP * seconds, synchronize=synchronize, stacks=stacks
        )
        alone.kept.clear()  # batches of workers hold shared memory
        together = run_loop(
            loader, step, seconds=TOGETHER * seconds, synchronize=synchronize, stacks=stacks
        )
        check_batches(together, seconds)
        m = estimate(loader, alone, alone_step, together, one_thread)
        m = replace(m, lines=read_lines(Path(folder), "diagnose"))
        cause = judge(m)
        share = TRIAL * seconds
        trials = run_trials(
            loader, step, m, cause, alone=alone, seconds=share, synchronize=synchronize
        )
        finding = recommend(m, cause, trials)
        proof = None
        if prove and finding.how is not None:
            share = PROOF * seconds
            proof = measure_gain(
                loader, step, m, finding.how, seconds=share, synchronize=synchronize
            )
    return Diagnosis(finding, m, together.trace, proof, asked_to_prove=prove)


def _check(loader: Any, step: Any, seconds: float) -> None:
    required("psutil")  # else it would be missed only after the first run
    if not seconds > 0:
        raise KeepfedError(
            f"`seconds` must be greater than 0, but is {seconds}. Use 10 to 60 seconds."
        )
    if not callable(step):
        raise KeepfedError(
            f"`step` has type {type(step).__name__}, but must be a function. Move the code that "
            "your loop runs for one batch into `def step(batch): ...`. Then call "
            "`diagnose(loader, step)`."
        )
    if isinstance(loader, Iterator):
        raise KeepfedError(
            "`loader` is an iterator, which can be used only once. Pass the DataLoader itself "
            "instead of `iter(loader)` or a generator."
        )
    if not isinstance(loader, Iterable):
        raise KeepfedError(
            f"`loader` has type {type(loader).__name__}, which cannot be iterated. Pass a "
            "DataLoader or a list of batches."
        )


@contextmanager
def _explain_worker_errors() -> Iterator[None]:
    """Explain the errors that torch raises for workers that die or hang."""
    try:
        yield
    except RuntimeError as error:
        message = str(error)
        if late := re.search(r"DataLoader timed out after ([\d.]+) seconds", message):
            raise KeepfedError(
                f"No batch arrived for {late[1]} s, so the loader hangs or is very slow. Find the "
                "place with `num_workers=0`, or increase `timeout`. Forked workers hang if they "
                'use OpenMP threads. In this case, set `multiprocessing_context="forkserver"`.'
            ) from error
        if "DataLoader worker" in message and "Caught" not in message:
            raise KeepfedError(
                f"A worker of the loader died ({message.splitlines()[0]}). Run the loader with "
                "`num_workers=0` to see the reason."
            ) from error
        raise


@contextmanager
def preserved(loader: Iterable[Any]) -> Iterator[None]:
    """Restore `loader` and the random number generators of this process afterwards.

    Inside the block, the loader starts new workers, and running persistent workers are set aside.
    A loader without a timeout gets one of `HANGS_S`.
    """
    with _same_random_numbers(loader):
        inner = data_loader_in(loader)
        if inner is None:
            yield
            return
        before = dict(vars(inner))
        try:
            inner._iterator = None
            if inner.num_workers and not inner.timeout:
                inner.timeout = HANGS_S
            yield
        finally:
            ours = getattr(inner, "_iterator", None)
            vars(inner).clear()
            vars(inner).update(before)
            end(ours, orderly=False)


@contextmanager
def _same_random_numbers(loader: Iterable[Any]) -> Iterator[None]:
    generators = _generators(loader)
    states = [generator.get_state() for generator in generators]
    ours, numpy_state = random.getstate(), np.random.get_state()
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if started else ()
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(ours)
            np.random.set_state(numpy_state)
            for generator, state in zip(generators, states, strict=True):
                generator.set_state(state)


def _generators(loader: Any) -> list[torch.Generator]:
    """Return the random number generators of the loader and its samplers."""
    inner = data_loader_in(loader)
    samplers = [getattr(inner, name, None) for name in ("sampler", "batch_sampler")]
    holders = [inner, *samplers, *(getattr(sampler, "sampler", None) for sampler in samplers)]
    found = (getattr(holder, "generator", None) for holder in holders)
    return [*{one for one in found if isinstance(one, torch.Generator)}]
