"""Try what needs no change of code: run the loader with other arguments, and see how fast it is.

What moving batches between processes costs, how many workers a storage or the cores bear and
whether a dataset serves whole batches cannot be told from its figures: it is tried. A trial runs
the loader alone, so that the step trains no more than it must; what the loop will gain follows
from the two.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

import torch
from torch.utils.data import Dataset, default_convert

from course_utils.measure.diagnosis.measurements import (
    Measurements,
    computing_s,
    start_up_s,
    steady,
)
from course_utils.measure.diagnosis.runs import Run, Step, run_loop
from course_utils.measure.diagnosis.verdict import Cause, oversubscribed, shares_too_few_cores
from course_utils.measure.hook import data_loader_in

MOST_WORKERS = 16
PROOF_ROUNDS = 3
TRIAL_HANGS_S = 20
NOTICED = 0.1  # share of a turn from which a start-up is worth a word
SHARES = "where __iter__ gives each worker a share of its own (get_worker_info)"

WHOLE = (
    "read each batch by one access: "
    "DataLoader(dataset, sampler=loader.batch_sampler, batch_size=None)"
)

Kind = Literal["arguments", "whole batches", "one thread", "thread ahead"]


@dataclass(frozen=True)
class Change:
    """What may be done about a loop without touching dataset or step."""

    words: str
    kind: Kind = "arguments"
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of the `DataLoader`


@dataclass(frozen=True)
class Trial:
    """How a loop is predicted to run after a change, from a run of the changed loader alone."""

    change: Change
    turn_s: float  # a batch, its share of the start-up included
    applicable: bool = True  # without touching the dataset


def candidates(m: Measurements, cause: Cause) -> list[Change]:
    """Return the changes that may help against `cause`, as far as they can be tried."""
    if cause not in ("storage", "CPU", "collate or IPC", "uneven"):
        return []
    if m.kind == "no DataLoader":
        words = "load ahead in a thread: for batch in ThreadPrefetcher(loader), which is in "
        return [Change(f"{words}course_utils.loading.prefetch", "thread ahead")]
    if shares_too_few_cores(m):
        return []
    if oversubscribed(m):
        return [Change(pools_to_one(m), "one thread")]
    found = []
    moves = m.workers and m.sending_s > m.making_s
    if m.kind == "batches of samples" and cause != "uneven":
        found.append(Change(WHOLE, "whole batches"))
    if m.workers and cause == "collate or IPC":
        found.append(with_arguments(num_workers=0))
    if m.workers > 1 and cause == "uneven":
        found.append(with_arguments(in_order=False))
    if not moves and (more := _more_workers(m, cause)) > m.workers:
        found.append(with_arguments(num_workers=more))
    return found


def pools_to_one(m: Measurements) -> str:
    """Return how the thread pools of this loop are limited to one thread."""
    if m.workers:
        return "thread pools to one: worker_init_fn=course_utils.loading.workers.worker_init"
    return "thread pools to one: OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1"


def with_arguments(**arguments: Any) -> Change:
    """Return the change to other arguments of the `DataLoader`."""
    words = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return Change(words, arguments=arguments)


def _more_workers(m: Measurements, cause: Cause) -> int:
    """Return how many workers keep up with the step, as far as cores or patience go."""
    most = m.cores if m.computing_s > m.waiting_s else MOST_WORKERS
    if cause == "uneven":
        return min(max(2, 2 * m.workers), most)
    wanted = math.ceil(m.making_s / m.step_s) + 1 if m.step_s else most
    enough: int = 2 ** math.ceil(math.log2(wanted))
    return min(max(enough, min(2, most)), most)


def try_out(
    loader: Iterable[Any], step: Step, m: Measurements, cause: Cause, *, alone: Run, seconds: float
) -> list[Trial]:
    """Run the loader with each change that may help, each for about `seconds`."""
    trials = (_try(loader, step, m, change, alone, seconds) for change in candidates(m, cause))
    return [trial for trial in trials if trial is not None]


def _try(
    loader: Iterable[Any], step: Step, m: Measurements, change: Change, alone: Run, seconds: float
) -> Trial | None:
    """Return what a trial says, None of a change that this loader does not bear."""
    if change.arguments.get("num_workers") and not _found_by_workers(loader):
        return None
    try:
        with applied(loader, change) as changed:
            run = run_loop(
                changed,
                step if change.kind == "thread ahead" else None,
                seconds=seconds,
                one_thread=change.kind == "one thread",
                keep=m.kind == "stream",
            )
    except Exception:  # whatever a stranger's dataset does with indices or workers
        return None
    repeats = m.kind == "stream" and _repeats(run, alone)
    run.kept.clear()
    if not run.steady:
        return None
    turn_s = predicted_s(m, run, change)
    lasting = _lasting(loader)
    if m.epoch and run.workers and not lasting and start_up_s(run) > NOTICED * turn_s * m.epoch:
        change, lasting = with_arguments(**change.arguments, persistent_workers=True), True
    turn_s += _first_s(run, m, lasting)
    if m.kind == "stream" and run.workers > max(1, m.workers):
        change = replace(change, words=f"{change.words}, {SHARES}")
    return Trial(change, turn_s, applicable=not repeats)


def _lasting(loader: Iterable[Any]) -> bool:
    return bool(getattr(data_loader_in(loader), "persistent_workers", False))


def _first_s(run: Run, m: Measurements, lasting: bool) -> float:
    """Return a batch's share of the wait for the first one of an epoch, beyond a turn.

    The workers load nothing before the epoch begins; unless they are `lasting`, they start first.
    """
    if not (m.epoch and run.workers):
        return 0.0
    first_s = run.first_s - (start_up_s(run) if lasting else 0.0)
    return max(0.0, first_s - run.batch_s) / m.epoch


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
) -> Proof:
    """Run the loop as it is and changed, in turns."""
    share = seconds / 2 / PROOF_ROUNDS
    now, later = list[float](), list[float]()
    for _ in range(PROOF_ROUNDS):
        run = run_loop(loader, step, seconds=share, synchronize=synchronize)
        now.append(run.batch_s + _first_s(run, m, _lasting(loader)))
        with applied(loader, change) as changed:
            one_thread = change.kind == "one thread"
            run = run_loop(
                changed, step, seconds=share, one_thread=one_thread, synchronize=synchronize
            )
            later.append(run.batch_s + _first_s(run, m, _lasting(changed)))
    gains = tuple(a / b for a, b in zip(now, later, strict=True))
    return Proof(median(now), median(later), gains)


def predicted_s(m: Measurements, run: Run, change: Change) -> float:
    """Return what a turn takes with a loader that ran alone like `run`."""
    if change.kind == "thread ahead":  # how two threads share an interpreter no model knows
        return run.batch_s
    if not run.workers:
        return run.batch_s + m.step_s
    fetches = steady(run.fetches)
    computed, stood = sum(f.cpu for f in fetches), sum(f.delay for f in fetches)
    cores = m.cores * (computed / (computed + stood) if computed else 1.0)  # others have the rest
    all_computing = (computing_s(run) + m.step_cpu_s) / cores
    return max(run.batch_s, m.step_s + run.cpu_s, all_computing)


def _repeats(run: Run, alone: Run) -> bool:
    """Tell whether each worker yields all samples instead of a share of them."""
    if run.lengths and alone.lengths and max(run.lengths) > 1.5 * max(alone.lengths):
        return True
    return len(run.kept) > 1 and run.workers > 1 and same(run.kept[0], run.kept[1])


@contextmanager
def applied(loader: Iterable[Any], change: Change) -> Iterator[Iterable[Any]]:
    """Yield the loader with the change; afterwards it is as it was."""
    if change.kind == "thread ahead":
        yield OneAhead(loader)
        return
    inner = data_loader_in(loader)
    assert inner is not None
    before = dict(vars(inner))
    vars(inner).update(_attributes(inner, change))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that workers outnumber the cores
            yield loader
    finally:
        vars(inner).clear()
        vars(inner).update(before)


def _attributes(loader: Any, change: Change) -> dict[str, Any]:
    """Return what the loader's attributes would be if it had been made with the change."""
    if change.kind == "whole batches":
        return {
            "dataset": _ByOneAccess(loader.dataset, loader.collate_fn),
            "sampler": loader.batch_sampler,
            "batch_sampler": None,
            "batch_size": None,
            "drop_last": False,
            "collate_fn": default_convert,
        }
    found = dict(change.arguments)
    workers = found.get("num_workers", loader.num_workers)
    found["prefetch_factor"] = (loader.prefetch_factor or 2) if workers else None
    found["timeout"] = (loader.timeout or TRIAL_HANGS_S) if workers else 0
    return found


class _ByOneAccess(Dataset[Any]):
    """A dataset that is asked for a whole batch, and refuses where that is another one."""

    def __init__(self, dataset: Any, collate: Any):
        self.dataset, self.collate, self.compared = dataset, collate, 0

    def __getitem__(self, indices: Any) -> Any:
        batch = self.dataset[indices]
        if self.compared < 2:
            self.compared += 1
            expected = self.collate([self.dataset[index] for index in indices])
            if not same(default_convert(batch), expected):  # type: ignore[no-untyped-call]
                raise ValueError("this dataset serves no whole batches")
        return batch


def same(one: Any, other: Any) -> bool:
    """Tell whether two batches hold the same."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    try:
        return bool(one == other)
    except Exception:  # whatever a stranger's class does when it is compared
        return False


class OneAhead:
    """A loader whose next batch is loaded in a thread meanwhile."""

    def __init__(self, loader: Any):
        self.loader = loader

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches, end = iter(self.loader), object()
        with ThreadPoolExecutor(1) as thread:
            coming = thread.submit(next, batches, end)
            while (batch := coming.result()) is not end:
                coming = thread.submit(next, batches, end)
                yield batch
