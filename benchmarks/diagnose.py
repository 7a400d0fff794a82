"""Diagnose every loop whose ailment is known, three times and under load: a confusion table.

python -m benchmarks.diagnose                 all of them
python -m benchmarks.diagnose storage uneven  those whose names hold one of the words
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.known_loaders import CAUSES, loop
from course_utils.errors import CourseError
from course_utils.measure.diagnosis import diagnose

RUNS = ("quiet", "quiet again", "two busy processes beside it")
BAR = 11 / 12


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of causes, built in and found, and return the exit status."""
    words = (sys.argv[1:] if argv is None else argv) or [""]
    names = [name for name in CAUSES if any(word in name for word in words)]
    print(f"Causes built into {len(names)} loops, and found (the bar is 11 of 12 in each run)")
    found = []
    for run in RUNS:
        with busy(2 if "busy" in run else 0):
            found.append([_find(name) for name in names])
    for number, name in enumerate(names):
        causes = [causes[number] for causes in found]
        print(f"  {name:<37} {' | '.join(f'{_marked(name, c):<18}' for c in causes)}")
    rights = [sum(CAUSES[n] == c for n, c in zip(names, causes, strict=True)) for causes in found]
    for run, right in zip(RUNS, rights, strict=True):
        print(f"  {run}: {right} of {len(names)} right")
    return 0 if min(rights) >= BAR * len(names) else 1


def _find(name: str) -> str:
    begun = time.perf_counter()
    try:
        with loop(name) as (loader, step):
            diagnosis = diagnose(loader, step)
        found, says = diagnosis.cause, f"{diagnosis.verdict} -> {diagnosis.change}"
    except CourseError as error:
        found, says = "refused", str(error)
    took = time.perf_counter() - begun
    print(f"  {took:4.0f} s  {_marked(name, found)}: {says}", file=sys.stderr, flush=True)
    return found


def _marked(name: str, found: str) -> str:
    return found if found == CAUSES[name] else f"{found} (WRONG)"


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
