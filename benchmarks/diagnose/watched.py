"""Watch a loop as `keepfed watch` does, without trials, and return its advice."""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, get_start_method, set_start_method

from benchmarks.diagnose.loops import LOOPS, loop
from keepfed.measure.advice import Cause, LoopFinding
from keepfed.measure.watch.loop import Watched
from keepfed.measure.watch.timing.ring_file import read_all, records_folder
from keepfed.measure.watch.watched_loop import watched_loops

WATCHED_S = 8.0


def advice_of_watching(name: str) -> tuple[Cause | None, LoopFinding | None]:
    """Watch a loop for a few seconds, in a new process that has watched no other loop."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_watched, name, get_start_method()).result()


def _watched(name: str, start_method: str) -> tuple[Cause | None, LoopFinding | None]:
    set_start_method(start_method, force=True)  # by default, a spawned process spawns its workers
    warnings.filterwarnings("ignore", "This DataLoader will create")
    begun = time.perf_counter()
    with loop(LOOPS[name]) as (loader, step):
        while time.perf_counter() - begun < WATCHED_S:  # whole epochs, if they are short
            for batch in Watched(loader):
                step(batch)
                if time.perf_counter() - begun > WATCHED_S:
                    break
        watched = watched_loops(read_all(records_folder()))[0]
        return watched.finding.cause if watched.finding else None, watched.finding
