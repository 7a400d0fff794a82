"""Diagnose loops with a known cause, apply the recommended change, and measure its gain.

python -m benchmarks.diagnose                 all loops, without load and with a busy process
python -m benchmarks.diagnose --busy          only with a process that keeps one core busy
python -m benchmarks.diagnose --quiet storage only without load, loops whose name contains a word
python -m benchmarks.diagnose --watched       advice of `keepfed watch`, which tries no change

Limits: `diagnose` finds the cause of 11 of 12 loops, no change makes a loop slower, and the
predicted gain is within a factor of 1.3 of the real gain. For watching, the only limit is that no
change makes a loop slower, because it runs no trials, and its gains assume that the cause is
removed completely.
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

from benchmarks.diagnose.loops import CAUSES, FIXED, LOOPS, loop
from benchmarks.diagnose.watched import advice_of_watching
from keepfed.errors import KeepfedError
from keepfed.measure.advice import Cause, LoopFinding
from keepfed.measure.advice.thresholds import WORTHWHILE_GAIN
from keepfed.measure.diagnosis import applied, diagnose

BAR = 11 / 12
WITHIN = 1.3
SLOWER = 0.95  # a lower gain is not noise
ROUNDS, SECONDS = 3, 1.5


@dataclass(frozen=True)
class Found:
    """Diagnosis of one loop, and the gain of the recommended change."""

    name: str
    cause: str
    change: str
    predicted: float | None = None  # None: no gain predicted
    real: float | None = None  # None: the benchmark contains no such change

    @property
    def ratio(self) -> float | None:
        """Predicted gain divided by the real gain; None if one is unknown."""
        return None if self.predicted is None or self.real is None else self.predicted / self.real


Advice = tuple[Cause | None, LoopFinding | None]  # None: unknown


@dataclass(frozen=True)
class Run:
    """A way to get advice, and the load on the machine while it runs."""

    title: str
    advise: Callable[[str, Any, Any], Advice]  # (name of the loop, loader, step) -> advice
    processes: int = 0  # busy processes
    tries: bool = True  # whether it tries changes before recommending one


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table for each run, and return exit status 1 if a limit is missed."""
    words = list(sys.argv[1:] if argv is None else argv)
    warnings.filterwarnings("ignore", "This DataLoader will create")
    runs = [RUNS[word] for word in words if word in RUNS] or [RUNS["--quiet"], RUNS["--busy"]]
    names = [word for word in words if word not in RUNS] or [""]
    chosen = [name for name in CAUSES if any(word in name for word in names)]
    return max([_table(run, chosen) for run in runs])


def _table(run: Run, names: Sequence[str]) -> int:
    print(f"{len(names)} loops, {run.title}")
    print(f"  {'loop':<42} {'cause':<22} {'predicted':>9} {'real':>6} {'ratio':>6}  change")
    found = []
    with busy(run.processes):
        for name in names:
            found.append(one := _find(name, run))
            figures = [f"{x:.2f}" if x else "-" for x in (one.predicted, one.real, one.ratio)]
            cause = one.cause if one.cause == CAUSES[name] else f"{one.cause} (WRONG)"
            columns = f"{cause:<22} {figures[0]:>9} {figures[1]:>6} {figures[2]:>6}"
            print(f"  {name:<42} {columns}  {one.change}", flush=True)
    right = sum(one.cause == CAUSES[one.name] for one in found)
    ratios = [one.ratio for one in found if one.ratio is not None]
    near = [ratio for ratio in ratios if 1 / WITHIN <= ratio <= WITHIN]
    worse = [one.name for one in found if one.real is not None and one.real < SLOWER]
    print(
        f"  {run.title}: {right} of {len(found)} causes right; {len(near)} of {len(ratios)} "
        f"predictions within a factor of {WITHIN}; made slower: {', '.join(worse) or 'none'}\n"
    )
    missed = right < BAR * len(found) or len(near) < len(ratios)
    return int((run.tries and missed) or bool(worse))


def _find(name: str, run: Run) -> Found:
    try:
        with loop(LOOPS[name]) as (loader, step):
            cause, advice = run.advise(name, loader, step)
            if cause is None or advice is None:
                return Found(name, "unknown", "")
            if cause == "GPU-bound":
                return Found(name, cause, advice.change)
            if not run.tries and (advice.gain or 1.0) < WORTHWHILE_GAIN:
                return Found(name, cause, "no worthwhile change")
            real = _gain(name, advice, loader, step)
    except KeepfedError as error:
        return Found(name, "error", str(error))
    return Found(name, cause, advice.change, None if cause == "memory" else advice.gain, real)


def _diagnosed(name: str, loader: Any, step: Any) -> Advice:
    found = diagnose(loader, step)
    return found.cause, found.finding


def _watched(name: str, loader: Any, step: Any) -> Advice:
    return advice_of_watching(name)


def _gain(name: str, advice: LoopFinding, loader: Any, step: Callable[[Any], Any]) -> float | None:
    """Apply the recommended change and return its real gain; None if the change is missing."""
    now, later = list[float](), list[float]()
    with ExitStack() as stack:
        mends = FIXED[name]
        followed = mends.get(advice.id) or mends.get("")
        changed, its_step = loader, step
        if advice.how is None:
            if followed is None:
                return None
            changed, its_step = stack.enter_context(loop(followed))
        for _ in range(ROUNDS):
            now.append(batch_s(loader, step))
            with ExitStack() as change:
                if advice.how is not None:
                    changed = change.enter_context(applied(loader, advice.how))
                later.append(batch_s(changed, its_step))
    return median(now) / median(later)


def batch_s(loader: Iterable[Any], step: Callable[[Any], Any]) -> float:
    """Return the seconds per batch: of whole epochs, or of the steady part of a long one."""
    begun = time.perf_counter()
    epochs: list[tuple[float, int]] = []  # (seconds including the end of the workers, batches)
    while time.perf_counter() - begun < SECONDS or len(epochs) < 2:
        start, ends = time.perf_counter(), list[float]()
        for batch in loader:
            step(batch)
            ends.append(time.perf_counter())
            if ends[-1] - ends[0] > SECONDS and len(ends) > 40:
                early = max(20, len(ends) // 5)
                return (ends[-1] - ends[early]) / (len(ends) - 1 - early)
        epochs.append((time.perf_counter() - start, len(ends)))
    later = epochs[1:]  # workers of the first epoch may be reused
    return sum(whole for whole, _ in later) / sum(count for _, count in later)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep `processes` cores busy inside the block."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while 1: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


RUNS = {
    "--quiet": Run("quiet", _diagnosed),
    "--busy": Run("with a busy process", _diagnosed, processes=1),
    "--watched": Run("watched", _watched, tries=False),
}

if __name__ == "__main__":
    sys.exit(main())
