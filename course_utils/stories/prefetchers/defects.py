"""A prefetcher with ten defects, and an intermediate design on the way to `CudaPrefetcher`.

`NotesPrefetcher` is our own code for a design that is often printed in tutorials. `SideStream` is
an intermediate design. A defect is a clause of the contract that `NotesPrefetcher` breaks and
`CudaPrefetcher` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
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
)
from keepfed.loaders.prefetch import CudaPrefetcher

NOTES_TIMEOUTS = Timeouts(hang=0.4, leave=0.1)  # `NotesPrefetcher` never recovers later
OUR_TIMEOUTS = Timeouts(hang=30, settle=0.01)  # `CudaPrefetcher` has no thread to wait for


class NotesPrefetcher:
    """A thread that copies batches to the device, and a queue that passes them to the loop."""

    def __init__(self, loader: Iterable[Any], devices: BenchMachine, queue_size: int = 3):
        """Start the thread, which immediately requests the first batch of `loader`."""
        self.loader, self.devices = loader, devices
        self.queue: Queue[Any] = Queue(queue_size)
        self.thread = Thread(target=self._fill, daemon=True, name="notes prefetcher")
        self.thread.start()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.queue.get, None)

    def _fill(self) -> None:
        for inputs, targets in self.loader:
            gpu = self.devices.current()  # like torch.device("cuda") without an index
            inputs = gpu.upload(inputs, non_blocking=True)
            targets = gpu.upload(targets, non_blocking=True)
            self.queue.put((inputs, targets))
        self.queue.put(None)  # the end


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
    return lambda loader, devices: design(loader, devices.current(), **options)


OURS = on_current(CudaPrefetcher)


class Defect(NamedTuple):
    """One defect, and the measured results."""

    number: int
    title: str
    notes: str  # result of NotesPrefetcher
    ours: str  # result of CudaPrefetcher
    proven: bool  # whether NotesPrefetcher breaks all tried clauses and CudaPrefetcher keeps them


def _end_thread(prefetcher: object) -> None:
    """End the thread of a `NotesPrefetcher`, and the loop that waits for it."""
    if not isinstance(prefetcher, NotesPrefetcher):
        return
    while prefetcher.thread.is_alive() or not prefetcher.queue.empty():
        with suppress(Empty):
            prefetcher.queue.get(timeout=0.001)
    prefetcher.queue.put(None)


def _try(name: str, make: Make = NotesPrefetcher, **changes: Any) -> tuple[bool, str, str]:
    """Run both designs in the changed trial of a clause.

    Returns:
        Whether only the first design breaks the clause, and the facts of both designs.
    """
    clause = PAGEABLE if name == "pageable memory" else CONTRACT[name]
    # pairs, as `NotesPrefetcher` requires
    batches = {} if clause is PAGEABLE else {"batches": make_pairs}
    trial = replace(clause.trial, **{**batches, "depth": None, **changes})
    with hidden_thread_tracebacks():
        broken, kept = TrialRun(make, trial, NOTES_TIMEOUTS), TrialRun(OURS, trial, OUR_TIMEOUTS)
        theirs, ours = clause.facts(broken), clause.facts(kept)
        _end_thread(broken.prefetcher)
    wrong = [fact for fact, value in clause.wanted.items() if theirs[fact] != value]
    notes, mine = (
        ", ".join(f"{fact}: {facts[fact]}" for fact in wrong) for facts in (theirs, ours)
    )
    return bool(wrong) and ours == clause.wanted, notes, mine


_LONG_QUEUE = partial(NotesPrefetcher, queue_size=4)

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
        partial(_try, "break", _LONG_QUEUE, leave_after=1)
    ],
    "Every rank copies to GPU 0": [partial(_try, "device index")],
    "The queue fills the memory of the GPU": [
        partial(_try, "memory in flight", _LONG_QUEUE, leave_after=1)
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
        proven, notes, ours = zip(*(run() for run in tries), strict=True)
        defects.append(Defect(number, title, "; ".join(notes), "; ".join(ours), all(proven)))
    return defects
