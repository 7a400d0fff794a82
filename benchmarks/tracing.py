"""Print what tracing and watching cost: per stage, per batch, as a share of a fast loop."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from time import process_time
from typing import Any

from torch.utils.data import DataLoader, Dataset

from course_utils.measure.spans import stage
from course_utils.measure.trace import record
from course_utils.measure.watch import watch

REPEATS, BATCHES = 7, 5_000


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
    items = [[0]] * BATCHES
    print(f"  1,000 batches/s loop         {_loop_share(items, _traced):6.2%}     (bar 1 %)")
    loader = DataLoader(Zeros(), batch_size=1)
    print(f"  the same from a DataLoader   {_loop_share(loader, _traced):6.2%}     (bar 1 %)")
    watched = watch(loader)
    share = _loop_share(loader, lambda _: watched)
    print(f"  the same with `watch`        {share:6.2%}     (bar 1 %)")
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


def _loop_share(items: Iterable[Any], recorded: Callable[[Iterable[Any]], Iterable[Any]]) -> float:
    """Return what `recorded` adds to a batch, as a share of the 1 ms that it may take."""

    def loop() -> None:
        for _ in recorded(items):
            pass

    def bare() -> None:
        for _ in items:
            pass

    extra = median(
        _per_call_ns(loop, BATCHES) - _per_call_ns(bare, BATCHES) for _ in range(REPEATS)
    )
    return extra / 1e6


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
