"""A prefetcher with ten defects, and an intermediate design on the way to `CudaPrefetcher`.

`QueuePrefetcher` is our own code for a design that a published course prints. `SideStream` is an
intermediate design. A defect is a clause of the contract that `QueuePrefetcher` breaks and
`CudaPrefetcher` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple

from course_utils.hardware.gpu import Accelerator
from course_utils.stories.prefetchers.bench import BenchMachine, make_pairs
from course_utils.stories.prefetchers.contract import CONTRACT, PAGEABLE, RUNS
from course_utils.stories.prefetchers.trial import (
    Make,
    Timeouts,
    TrialRun,
    hidden_thread_tracebacks,
    in_torch,
)
from keepfed.loaders.prefetch import CudaPrefetcher

QUEUE_TIMEOUTS = Timeouts(hang=0.4, leave=0.1)  # `QueuePrefetcher` never recovers later
OUR_TIMEOUTS = Timeouts(hang=30, settle=0.01)  # `CudaPrefetcher` has no thread to wait for


class QueuePrefetcher:
    """A thread copies batches to the GPU, and a queue passes them to the loop."""

    def __init__(self, loader: Iterable[Any], queue_size: int = 3):
        self.loader, self.queue = loader, Queue[Any](queue_size)
        self.thread = Thread(target=self._fill, daemon=True)
        self.thread.start()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.queue.get, None)

    def _fill(self) -> None:
        for inputs, targets in self.loader:
            inputs = inputs.to("cuda", non_blocking=True)
            targets = targets.to("cuda", non_blocking=True)
            self.queue.put((inputs, targets))
        self.queue.put(None)


class SideStream:
    """Copies one batch ahead on a separate stream. Without `wait`, steps read garbage.

    With `wait` the results are right, unless the loop drops a batch that a step still reads.
    """

    def __init__(self, loader: Iterable[Any], gpu: Accelerator, *, wait: bool = False):
        self.loader, self.gpu, self.wait = loader, gpu, wait

    def __iter__(self) -> Iterator[Any]:
        copies, ready = self.gpu.Stream(), None
        for batch in chain(self.loader, [None]):
            before, ready = ready, None
            if batch is not None:
                with self.gpu.stream(copies):
                    ready = self.gpu.upload(batch, non_blocking=True), copies.record_event()
            if before is not None:
                if self.wait:
                    self.gpu.current_stream().wait_event(before[1])
                yield before[0]
            del before  # else it would stay alive until the copy after the next


def on_current(design: Callable[..., Iterable[Any]], **options: Any) -> Make:
    """Return a factory that passes the current GPU to `design`."""

    def make(loader: Iterable[Any], devices: BenchMachine, *depth: int) -> Iterable[Any]:
        given = dict(zip(["depth"], depth, strict=False))
        return design(loader, devices.current(), **options, **given)

    return make


OURS = on_current(CudaPrefetcher)
QUEUE, LONG_QUEUE = in_torch(QueuePrefetcher), in_torch(QueuePrefetcher, queue_size=4)


class Defect(NamedTuple):
    """One defect, and the measured results."""

    number: int
    title: str
    theirs: str  # result of QueuePrefetcher
    ours: str  # result of CudaPrefetcher
    proven: bool  # whether QueuePrefetcher breaks all tried clauses and CudaPrefetcher keeps them


def _end_thread(seen: TrialRun) -> None:
    """End the thread of a `QueuePrefetcher`, and the loop that waits for it."""
    if not isinstance(prefetcher := seen.prefetcher, QueuePrefetcher):
        return
    while prefetcher.thread.is_alive() or not prefetcher.queue.empty():
        with suppress(Empty):
            prefetcher.queue.get(timeout=0.001)
    prefetcher.queue.put(None)
    seen.done.wait(1)


def _try(name: str, make: Make = QUEUE, **changes: Any) -> tuple[bool, str, str]:
    """Run both designs in the changed trial of a clause.

    Returns:
        Whether only the first design breaks the clause, and the facts of both designs.
    """
    clause = PAGEABLE if name == "pageable memory" else CONTRACT[name]
    # pairs, as `QueuePrefetcher` requires
    batches = {} if clause is PAGEABLE else {"batches": make_pairs}
    trial = replace(clause.trial, **{**batches, "depth": None, **changes})
    with hidden_thread_tracebacks():
        with closing(TrialRun(make, trial, QUEUE_TIMEOUTS)) as broken:
            theirs = clause.facts(broken)
            _end_thread(broken)
        with closing(TrialRun(OURS, trial, OUR_TIMEOUTS)) as kept:
            ours = clause.facts(kept)
    wrong = [fact for fact, value in clause.wanted.items() if theirs[fact] != value]
    first = wrong[0] if wrong else ""
    notes, mine = (f"{first}: {facts.get(first)}" for facts in (theirs, ours))
    return bool(wrong) and ours == clause.wanted, notes, mine


PROOFS = {
    "Copies and steps share a stream": [partial(_try, "overlap")],
    "The copy is only enqueued, and no event marks its end": [
        partial(_try, "right", own_streams=1)
    ],
    "The obvious repair computes with garbage: a second stream without a wait, or with a wait but "
    "without record_stream, if the losses are read late": [
        partial(_try, "losses read late", on_current(SideStream), late=()),
        partial(_try, "losses read late", on_current(SideStream, wait=True), late=range(RUNS)),
    ],
    "An error of the loader ends the thread without a message": [partial(_try, "exception")],
    "The second epoch hangs": [partial(_try, "second epoch", epochs=2)],
    "Leaving the loop leaves thread, batches and loader behind": [
        partial(_try, "break", LONG_QUEUE, leave_after=1)
    ],
    "Every rank copies to GPU 0": [partial(_try, "device index")],
    "The queue fills the memory of the GPU": [
        partial(_try, "memory in flight", LONG_QUEUE, leave_after=1)
    ],
    "Batches must be pairs in pinned memory, and nothing checks it": [
        partial(_try, "nested batch", batches=lambda: [(a, b, a) for a, b in make_pairs()]),
        partial(
            _try,
            "nested batch",
            batches=lambda: [{"inputs": a, "targets": b} for a, b in make_pairs()],
        ),
        partial(_try, "pageable memory"),
    ],
    "It reads before the loop starts": [partial(_try, "order")],
}


def prove_all() -> list[Defect]:
    """Prove the ten defects in order. A hanging loop takes less than half a second."""
    defects = []
    for number, (title, tries) in enumerate(PROOFS.items(), 1):
        proven, theirs, ours = zip(*(run() for run in tries), strict=True)
        lost, kept = ("; ".join(dict.fromkeys(each)) for each in (theirs, ours))
        defects.append(Defect(number, title, lost, kept, all(proven)))
    return defects
