"""Measure the cost of tracing and watching: per stage, per batch, and as a share of a step.

A training step runs between two batches, because it evicts this code from the CPU caches. The same
code is several times faster when it is called twice in a row.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from time import process_time, thread_time_ns
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from keepfed.auditing.loops import _process, watch_iterator
from keepfed.formatting import plural
from keepfed.measure.spans import stage
from keepfed.measure.trace import record
from keepfed.measure.watch import watch
from keepfed.measure.watch.loop import _print_report

Recording = Callable[[Iterable[Any]], Iterable[Any]]
REPEATS, TURNS, BATCHES = 5, 300, 1_000
WIDTHS = 784, 512, 3, 512, 784


class Zeros(Dataset[int]):
    """Dataset of zeros that cost nothing to load."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> int:
        return 0


class Training:
    """A small autoencoder, trained in one thread."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS) -> None:
        torch.set_num_threads(1)
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        self.net = nn.Sequential(*layers)
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.images = torch.rand(64, widths[0])

    def step(self) -> None:
        """Train on the same images again."""
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.net(self.images), self.images)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def main() -> None:
    """Measure, and print the costs next to their limits."""
    print("Cost of tracing (median of repeats)")
    print(f"  stage(), nothing recording   {_stage_ns() / 1000:6.2f} µs  (limit 0.5)")
    with record():
        print(f"  stage(), recording           {_stage_ns() / 1000:6.2f} µs  (limit 2)")
    print("  in next(), as a share of the step     (limit 1 %)")
    _print_turn("traced", [[0]] * BATCHES, _traced)
    recorded: Recording
    for widths, step in (((64, 64), "0.5 ms"), (WIDTHS, "3 ms")):
        rows = TensorDataset(torch.rand(32 * BATCHES, 64), torch.arange(32 * BATCHES) % 10)
        for what, recorded in (("watched", watch), ("audited", _audited)):
            batches = DataLoader(rows, 32, shuffle=True)
            _print_turn(f"{what}, {step}", batches, recorded, Training(widths))
    for workers in (0, 1):
        loader = DataLoader(Zeros(), batch_size=1, num_workers=workers)
        for what, recorded in (("traced", _traced), ("watched", watch)):
            _print_turn(f"{what}, {plural(workers, 'worker')}", loader, recorded)
            if workers:
                print(f"      in the worker {_in_the_worker_us(loader, recorded):15.1f} µs a batch")
    atexit.unregister(_print_report)  # nobody needs their reports
    _process.loaders.clear()


def _per_call_ns(action: Callable[[], None], calls: int) -> float:
    start = process_time()
    action()
    return (process_time() - start) / calls * 1e9


def _stage_ns(calls: int = 100_000) -> float:
    def marked() -> None:
        for _ in range(calls):
            with stage("read"):
                pass

    def bare() -> None:
        for _ in range(calls):
            pass

    return median(_per_call_ns(marked, calls) - _per_call_ns(bare, calls) for _ in range(REPEATS))


def _traced(items: Iterable[Any]) -> Iterator[Any]:
    with record() as trace:
        yield from trace.batches(items)


def _audited(loader: Any) -> Iterator[Any]:
    batches: Any = watch_iterator(loader, type(loader)._get_iterator)
    yield from iter(lambda: batches._step_timer.time_next(batches, next), None)


def _print_turn(
    what: str, items: Iterable[Any], recorded: Recording, training: Training | None = None
) -> None:
    """Print the CPU time that `recorded` adds to next() after a step, next to a plain loop."""
    training = training or Training()

    def turn_us(batches: Iterator[Any]) -> tuple[float, float]:
        start = thread_time_ns()
        training.step()
        asked = thread_time_ns()
        next(batches)
        return (asked - start) / 1000, (thread_time_ns() - asked) / 1000

    plain, other = iter(items), iter(recorded(items))
    for batches in (plain, other):
        next(batches)  # starts the workers
    turns = [(turn_us(plain), turn_us(other)) for _ in range(TURNS)]
    step, wait, more = (median(us) for us in zip(*((*a, b[1]) for a, b in turns), strict=True))
    extra, whole = more - wait, (step + wait) / 1000
    print(
        f"    {what:<23}{extra:6.1f} µs  {extra / whole / 1000:6.2%} of {whole:.1f} ms", flush=True
    )


def _in_the_worker_us(loader: Iterable[Any], recorded: Recording) -> float:
    """Return the CPU time that `recorded` adds in the worker, per batch."""

    def ended_us() -> float:
        used = getrusage(RUSAGE_CHILDREN)
        return 1e6 * (used.ru_utime + used.ru_stime)

    def epoch_us(batches: Iterable[Any]) -> float:
        start = ended_us()
        list(batches)
        return (ended_us() - start) / BATCHES

    return median(epoch_us(recorded(loader)) - epoch_us(loader) for _ in range(REPEATS))


if __name__ == "__main__":
    main()
