"""Find out why a training loop waits: run the loader alone, the step alone, and both together.

    print(diagnose(loader, step))

This module decides what to run and for how long: `runs` runs it, `run_estimates` makes figures of
it, `measure.advice` judges by them and names a change, `trials` tries it, and `report` says it all.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from keepfed.errors import KeepfedError
from keepfed.measure.advice import Change, judge, recommend
from keepfed.measure.diagnosis.changes import applied
from keepfed.measure.diagnosis.proof import measure_gain
from keepfed.measure.diagnosis.report import Diagnosis
from keepfed.measure.diagnosis.run_estimates import check_batches, estimate, may_be_oversubscribed
from keepfed.measure.diagnosis.runs import run_loop, run_step
from keepfed.measure.diagnosis.trials import run_trials
from keepfed.measure.hook import data_loader_in, end

ALONE, STEP, TOGETHER, TRIAL = 0.3, 0.15, 0.3, 0.08  # shares of the time
PROOF = 0.5  # of it, on top
HANGS_S = 60  # without a batch, where the loader itself would wait for ever


def diagnose(
    loader: Iterable[Any],
    step: Callable[[Any], Any],
    *,
    seconds: float = 40.0,
    synchronize: Callable[[], Any] | None = None,
    prove: bool = False,
) -> Diagnosis:
    """Say what a training loop waits for, and the one change to make.

    The loader is left as it was, and no process of it stays. The step really trains: give it a copy
    of the model if that matters.

    Args:
        loader: a `DataLoader` of any kind, or anything that gives batches each time it is iterated.
        step: what the loop does with one batch: upload it and train on it.
        seconds: about how long it may take, start-up of workers included.
        synchronize: wait until the device has done all it was given; needed only for a device that
            torch.accelerator does not know.
        prove: make the change where that can be done without your code, run the loop with and
            without it in turns, and say what was gained; takes half as long again.

    Raises:
        KeepfedError: the loop cannot be judged; the sentence says what to do. What the dataset or
            the step raises comes through as it is.
    """
    _check(loader, step, seconds)
    with preserved(loader), _explain_worker_errors():
        # the step sees the very first batch at once: what is wrong with it shows in a moment
        alone = run_loop(loader, None, seconds=ALONE * seconds, keep=True, first=step)
        check_batches(alone, seconds)
        one_thread = None
        if may_be_oversubscribed(alone):
            with applied(loader, Change("", "one thread")) as changed:
                one_thread = run_loop(changed, None, seconds=TRIAL * seconds)
        alone_step = run_step(step, alone.kept, seconds=STEP * seconds, synchronize=synchronize)
        alone.kept.clear()  # batches of workers hold shared memory
        together = run_loop(loader, step, seconds=TOGETHER * seconds, synchronize=synchronize)
        check_batches(together, seconds)
        m = estimate(loader, alone, alone_step, together, one_thread)
        cause = judge(m)
        share = TRIAL * seconds
        trials = run_trials(
            loader, step, m, cause, alone=alone, seconds=share, synchronize=synchronize
        )
        found = recommend(m, cause, trials)
        proof = None
        if prove and found.how is not None:
            share = PROOF * seconds
            proof = measure_gain(loader, step, m, found.how, seconds=share, synchronize=synchronize)
    return Diagnosis(cause, *found, m, together.trace, proof, asked_to_prove=prove)


def _check(loader: Any, step: Any, seconds: float) -> None:
    if not seconds > 0:
        raise KeepfedError(f"In {seconds=} nothing can be measured; give it 10 to 60.")
    if not callable(step):
        raise KeepfedError(
            "The step is no function; give what your loop does with one batch: "
            "def step(batch): ..., then diagnose(loader, step)."
        )
    if isinstance(loader, Iterator):
        raise KeepfedError(
            "This loader can be run through only once; give the DataLoader itself, not "
            "iter(loader) or a generator."
        )
    if not isinstance(loader, Iterable):
        raise KeepfedError(
            f"A {type(loader).__name__} gives no batches; give a DataLoader, or a list of batches."
        )


@contextmanager
def _explain_worker_errors() -> Iterator[None]:
    """Say in a sentence what torch says of workers that die or hang."""
    try:
        yield
    except RuntimeError as error:
        message = str(error)
        if late := re.search(r"DataLoader timed out after ([\d.]+) seconds", message):
            raise KeepfedError(
                f"No batch came for {late[1]} s, so the loader hangs or is very slow. Run it with "
                "num_workers=0 to find out where, or raise its timeout=. Forked workers hang if "
                'they use several threads of OpenMP: try multiprocessing_context="forkserver".'
            ) from error
        if "DataLoader worker" in message and "Caught" not in message:
            raise KeepfedError(
                f"A worker of the loader died ({message.splitlines()[0]}); run it with "
                "num_workers=0 to see why."
            ) from error
        raise


@contextmanager
def preserved(loader: Iterable[Any]) -> Iterator[None]:
    """Leave `loader` and the random numbers of this process as they were.

    Inside, the loader starts workers of its own: persistent ones that run already are put aside. A
    loader that would wait for ever for a batch gives up after `HANGS_S`.
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
    """Return the generators that the loader and its samplers hold."""
    inner = data_loader_in(loader)
    samplers = [getattr(inner, name, None) for name in ("sampler", "batch_sampler")]
    holders = [inner, *samplers, *(getattr(sampler, "sampler", None) for sampler in samplers)]
    found = (getattr(holder, "generator", None) for holder in holders)
    return [*{one for one in found if isinstance(one, torch.Generator)}]
