"""Print predicted and measured utilisation of several loops, to test the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import median

from course_utils.teaching.explorer import run_pipeline
from course_utils.teaching.notebook import start_workers
from keepfed.measure.simulate import Pipeline, simulate
from keepfed.measure.spans import compute_spans

REPEATS = 3
IO = Pipeline(read_ms=80, step_ms=50)  # limited by storage
MIXED = Pipeline(read_ms=40, decode_ms=30, collate_ms=10, step_ms=50, cores=2)
COPY = replace(MIXED, copy_ms=20)

REFERENCE: Mapping[str, Pipeline] = {
    "naive, storage": IO,
    "naive, storage and CPU": MIXED,
    "naive, copies too": COPY,
    "1 worker": replace(IO, num_workers=1),
    "2 workers": replace(IO, num_workers=2),
    "4 workers": replace(IO, num_workers=4),
    "2 workers, storage and CPU": replace(MIXED, num_workers=2),
    "1 worker, prefetch 8": replace(IO, num_workers=1, prefetch_factor=8),
    "4 workers, storage for one": replace(IO, num_workers=4, storage_streams=1),
    "4 workers, storage for two, fast GPU": Pipeline(
        read_ms=80, step_ms=20, num_workers=4, storage_streams=2
    ),
    "2 workers, CPU-bound": Pipeline(decode_ms=80, step_ms=50, num_workers=2, cores=2),
    "4 workers, CPU-bound, 2 cores": Pipeline(decode_ms=80, step_ms=20, num_workers=4, cores=2),
    "2 workers, pageable copies": replace(COPY, num_workers=2),
    "2 workers, pinned copies": replace(COPY, num_workers=2, pinned=True),
    "2 workers, copies overlapped": replace(COPY, num_workers=2, pinned=True, overlap=True),
    "2 workers, overlapped, loss not read": replace(
        COPY, num_workers=2, pinned=True, overlap=True, sync=False
    ),
    "naive, loss not read": replace(IO, sync=False),
}


def main() -> None:
    """Measure all loops, and print the error of the model in percentage points."""
    start_workers()
    host_ms = _host_ms()
    print(f"This main process takes {host_ms:.1f} ms for a batch that is already loaded")
    print(f"AU, predicted and measured, median of {REPEATS} runs (limit: 5 points)")
    misses = [
        _compare(name, replace(pipeline, host_ms=host_ms)) for name, pipeline in REFERENCE.items()
    ]
    print(f"  {len(misses)} loops, largest miss {max(misses):.1f} points")


def _host_ms() -> float:
    """Return the time of a step, without its device time, when there is nothing to load."""
    steps = compute_spans(run_pipeline(Pipeline(step_ms=20, num_workers=1)).spans)
    return median((b.start_ns - a.end_ns) / 1e6 for a, b in pairwise(steps))


def _compare(name: str, pipeline: Pipeline) -> float:
    predicted = simulate(pipeline).summary().au
    measured = sorted(run_pipeline(pipeline).summary().au for _ in range(REPEATS))
    miss = abs(predicted - median(measured)) * 100
    spread = f"{measured[0]:.1%} to {measured[-1]:.1%}"
    print(f"  {name:37} {predicted:6.1%} {median(measured):6.1%}  {miss:4.1f} points  ({spread})")
    return miss


if __name__ == "__main__":
    main()
