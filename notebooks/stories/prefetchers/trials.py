"""Trials of a prefetcher, and what their outcome is called.

Real time is waited for only where something hangs, and then not for long.
"""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any

from course_utils.hardware.gpu import EmulatedAccelerator, VirtualClock
from course_utils.loading.prefetch import CudaPrefetcher
from course_utils.measure.spans import hidden_share
from course_utils.measure.trace import record
from course_utils.teaching.exercise import quiet_threads
from notebooks.stories.prefetchers.bench import BATCH_BYTES, Source, sums
from notebooks.stories.prefetchers.notes_prefetcher import NotesPrefetcher

SURE_S = 0.3  # whoever waits that long for a thread that is dead waits for ever
LIMIT_S = 30.0


def wrong(found: Sequence[float], source: Source, epoch: int = 0) -> int:
    """Count the checksums that are not those of the source's batches, in order."""
    return sum(a != b for a, b in zip(found, source.checksums(epoch), strict=True))


def hidden_after_first(
    gpu: EmulatedAccelerator, clock: VirtualClock, batches: Iterable[Any]
) -> float:
    """Train on the batches; return the hidden share of the copies that start with or after a step.

    The first batch has no step before it that could hide its copy.
    """
    with record(clock=clock) as trace:
        sums(gpu, batches)
    first = min(span.start_ns for span in trace.spans if span.lane == "gpu")
    return hidden_share([span for span in trace.spans if span.start_ns >= first])


@dataclass(frozen=True)
class Defect:
    """One defect, what the notes say or do, and what was measured."""

    number: int
    title: str
    claim: str
    notes: str  # seen with the design of the notes
    ours: str  # seen with CudaPrefetcher
    proven: bool  # the two differ as they should

    def __str__(self) -> str:
        """Say it in four lines."""
        return (
            f"{self.number}. {self.title}\n   notes: {self.claim}\n"
            f"   seen: {self.notes}\n   CudaPrefetcher: {self.ours}"
        )


@dataclass(frozen=True)
class Outcome:
    """How a loop went."""

    batches: int
    stuck: bool
    error: str = ""

    def __str__(self) -> str:
        """Say it in a few words."""
        end = "then it hangs" if self.stuck else f"then {self.error}" if self.error else ""
        return f"{self.batches} batches" + (f", {end}" if end else "")


Prefetcher = NotesPrefetcher | CudaPrefetcher


def try_loop(make: Callable[[], Prefetcher], *, epochs: int = 1) -> Outcome:
    """Make a prefetcher and loop over it in a thread; if that hangs, say so and set it free."""
    got: list[object] = []
    errors: list[str] = []

    def loop() -> None:
        try:
            for _ in range(epochs):
                for batch in prefetcher:
                    got.append(type(batch))
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")

    with quiet_threads():
        prefetcher = make()
        thread = Thread(target=loop, daemon=True, name="loop of a trial")
        thread.start()
        if isinstance(prefetcher, NotesPrefetcher):
            prefetcher.thread.join(LIMIT_S)
            thread.join(SURE_S)
        else:
            thread.join(LIMIT_S)
    stuck = thread.is_alive()
    if stuck and isinstance(prefetcher, NotesPrefetcher):
        for _ in range(epochs):
            prefetcher.queue.put(None)
        thread.join(LIMIT_S)
    return Outcome(len(got), stuck, *errors)


def until(condition: Callable[[], bool]) -> bool:
    """Wait until a thread has made the condition true; at most some seconds."""
    end = time.monotonic() + LIMIT_S / 10
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(0.001)
    return true


def stop(prefetcher: NotesPrefetcher) -> None:
    """End the thread of a prefetcher that nobody loops over any more."""
    while prefetcher.thread.is_alive():
        if not prefetcher.queue.empty():
            prefetcher.queue.get()
        prefetcher.thread.join(0.001)


def on_device(gpu: EmulatedAccelerator) -> int:
    """Count the whole batches in the memory of the GPU once it has done its work."""
    gpu.synchronize()
    return gpu.memory_allocated() // BATCH_BYTES


def warned(batches: Iterable[Any]) -> int:
    """Loop over the batches and count the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        deque(batches, maxlen=0)
    return len(caught)
