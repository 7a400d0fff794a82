"""Diagnose loops whose ailment is known, make the change that is advised, and measure its gain.

python -m benchmarks.diagnose                 all of them, quiet and beside a busy process
python -m benchmarks.diagnose --busy          only beside a process that keeps one core busy
python -m benchmarks.diagnose --quiet storage only quiet, those whose names hold one of the words

The bars: the cause is found in 11 of 12 loops, no change makes a loop slower, and the predicted
gain is within a factor of 1.3 of the real one.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.diagnose.loops import CAUSES, LOOPS, MENDED, loop
from course_utils.errors import CourseError
from course_utils.measure.diagnosis import Diagnosis, applied, diagnose

RUNS = {"--quiet": ("quiet", 0), "--busy": ("beside a busy process", 1)}
BAR = 11 / 12
WITHIN = 1.3
SLOWER = 0.95  # a gain below is no noise
ROUNDS, SECONDS = 3, 1.5


@dataclass(frozen=True)
class Found:
    """What was found of one loop, and what its advice gained."""

    name: str
    cause: str
    change: str
    predicted: float | None = None  # None: no speed is promised
    real: float | None = None  # None: nobody made the change

    @property
    def ratio(self) -> float | None:
        """How many times more was predicted than gained; None if that is not known."""
        return None if self.predicted is None or self.real is None else self.predicted / self.real


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table for each run, and return the exit status: 1 if a bar is missed."""
    words = list(sys.argv[1:] if argv is None else argv)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    runs = [RUNS[word] for word in words if word in RUNS] or RUNS.values()
    names = [word for word in words if word not in RUNS] or [""]
    chosen = [name for name in CAUSES if any(word in name for word in names)]
    return max([_table(run, processes, chosen) for run, processes in runs])


def _table(run: str, processes: int, names: Sequence[str]) -> int:
    print(f"{len(names)} loops, {run}")
    print(f"  {'loop':<42} {'cause':<22} {'predicted':>9} {'real':>6} {'ratio':>6}  change")
    found = []
    with busy(processes):
        for name in names:
            found.append(one := _find(name))
            figures = [f"{x:.2f}" if x else "-" for x in (one.predicted, one.real, one.ratio)]
            cause = one.cause if one.cause == CAUSES[name] else f"{one.cause} (WRONG)"
            columns = f"{cause:<22} {figures[0]:>9} {figures[1]:>6} {figures[2]:>6}"
            print(f"  {name:<42} {columns}  {one.change}", flush=True)
    right = sum(one.cause == CAUSES[one.name] for one in found)
    ratios = [one.ratio for one in found if one.ratio is not None]
    near = [ratio for ratio in ratios if 1 / WITHIN <= ratio <= WITHIN]
    worse = [one.name for one in found if one.real is not None and one.real < SLOWER]
    print(
        f"  {run}: {right} of {len(found)} causes right; {len(near)} of {len(ratios)} predictions "
        f"within a factor of {WITHIN}; made slower: {', '.join(worse) or 'none'}\n"
    )
    return int(right < BAR * len(found) or len(near) < len(ratios) or bool(worse))


def _find(name: str) -> Found:
    try:
        with loop(LOOPS[name]) as (loader, step):
            diagnosis = diagnose(loader, step)
            if diagnosis.cause == "GPU-bound":
                return Found(name, diagnosis.cause, diagnosis.change)
            real = _gain(name, diagnosis, loader, step)
    except CourseError as error:
        return Found(name, "refused", str(error))
    promised = None if diagnosis.cause == "memory" else diagnosis.gain
    return Found(name, diagnosis.cause, diagnosis.change, promised, real)


def _gain(name: str, diagnosis: Diagnosis, loader: Any, step: Callable[[Any], Any]) -> float | None:
    """Make the change that is advised and return what it gains; None if nobody made it."""
    now, later = list[float](), list[float]()
    with ExitStack() as stack:
        mends = MENDED[name].items()
        followed = next((make for advice, make in mends if advice in diagnosis.change), None)
        changed, its_step = loader, step
        if diagnosis.how is None:
            if followed is None:
                return None
            changed, its_step = stack.enter_context(loop(followed))
        for _ in range(ROUNDS):
            now.append(batch_s(loader, step))
            with ExitStack() as change:
                if diagnosis.how is not None:
                    changed = change.enter_context(applied(loader, diagnosis.how))
                later.append(batch_s(changed, its_step))
    return median(now) / median(later)


def batch_s(loader: Iterable[Any], step: Callable[[Any], Any]) -> float:
    """Return the seconds of a batch in long training: whole epochs, or the steady part of one."""
    begun = time.perf_counter()
    epochs: list[tuple[float, int]] = []  # seconds until the workers have ended, batches
    while time.perf_counter() - begun < SECONDS or len(epochs) < 2:
        start, ends = time.perf_counter(), list[float]()
        for batch in loader:
            step(batch)
            ends.append(time.perf_counter())
            if ends[-1] - ends[0] > SECONDS and len(ends) > 40:
                early = max(20, len(ends) // 5)
                return (ends[-1] - ends[early]) / (len(ends) - 1 - early)
        epochs.append((time.perf_counter() - start, len(ends)))
    later = epochs[1:]  # the workers of the first may live on
    return sum(whole for whole, _ in later) / sum(count for _, count in later)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep `processes` cores busy meanwhile."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
