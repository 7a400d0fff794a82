"""Print what tracing and watching cost: per stage, per batch, as a share of a fast loop.

The loop sleeps between two batches: code that has left the caches costs several times as much as it
does at once again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median
from time import process_time, sleep
from typing import Any

from torch.utils.data import DataLoader, Dataset

from course_utils.measure.spans import stage
from course_utils.measure.trace import record
from course_utils.measure.watch import watch

REPEATS, BATCHES, STEP_S = 5, 1_000, 0.001


class Zeros(Dataset[int]):
    """Nothing worth the name of a sample."""

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> int:
        return 0


def main() -> None:
    """Measure and print the costs beside their bars."""
    print("What tracing costs in processor time (median of repeats)")
    print(f"  stage(), nothing recording   {_stage_ns() / 1000:6.2f} µs  (bar 0.5)")
    with record():
        print(f"  stage(), recording           {_stage_ns() / 1000:6.2f} µs  (bar 2)")
    print("  a loop of 1,000 batches/s            (bar 1 %)")
    _print_loop("traced", [[0]] * BATCHES, _traced)
    for workers in (0, 1):
        loader = DataLoader(Zeros(), batch_size=1, num_workers=workers)
        where = f"{workers} workers" if workers != 1 else "1 worker"
        _print_loop(f"traced, {where}", loader, _traced)
        watched = watch(loader)
        _print_loop(f"watched, {where}", loader, partial(_given, watched))
        repr(watched)  # else it would be told at the end
    print(f"  import course_utils          {_import_s():6.3f} s   (bar 0.2)")


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


def _given(watched: Iterable[Any], _: Iterable[Any]) -> Iterable[Any]:
    return watched


def _print_loop(
    what: str, items: Iterable[Any], recorded: Callable[[Iterable[Any]], Iterable[Any]]
) -> None:
    """Print what `recorded` adds to a batch, and from which turns on that is below one in 100."""

    def batch_s(batches: Iterable[Any]) -> float:
        start = _processor_s()
        for _ in batches:
            sleep(STEP_S)
        return (_processor_s() - start) / BATCHES

    extra = median(batch_s(recorded(items)) - batch_s(items) for _ in range(REPEATS))
    turn = f"1 % of a turn of {1e5 * extra:4.1f} ms"
    print(f"    {what:<25}{1e6 * extra:6.1f} µs  {extra / STEP_S:6.2%}, {turn}", flush=True)


def _processor_s() -> float:
    """Return the processor time of this process and of the workers that have ended."""
    used = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in used)


def _import_s() -> float:
    command = "import time; t = time.perf_counter(); import course_utils; "
    command += "print(time.perf_counter() - t)"
    runs = (
        subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
        for _ in range(REPEATS)
    )
    return median(float(run.stdout) for run in runs)


if __name__ == "__main__":
    main()
