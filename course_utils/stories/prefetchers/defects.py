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
from keepfed.formatting import percent, plural
from keepfed.loaders.prefetch import CudaPrefetcher

NOTES_TIMEOUTS = Timeouts(hang=0.4, leave=0.1)  # `NotesPrefetcher` never recovers later
OUR_TIMEOUTS = Timeouts(hang=30, settle=0.01)  # `CudaPrefetcher` has no thread to wait for
Say = Callable[..., str]
_CLAUSES = {**CONTRACT, "pageable memory": PAGEABLE}


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


class ClauseTrial:
    """A clause with a modified trial. Its batches are pairs, as `NotesPrefetcher` requires."""

    def __init__(self, clause: str, make: Make = NotesPrefetcher, **trial: Any):
        self.clause, self.make = _CLAUSES[clause], make
        self.trial = replace(self.clause.trial, **{"batches": make_pairs, "depth": None, **trial})


class DefectProof:
    """A proof of one defect: the trials to run, and functions that describe their results."""

    def __init__(self, title: str, say: Say, *tries: ClauseTrial, ours: Say | None = None):
        """Use `say` for both designs, unless `ours` describes `CudaPrefetcher`."""
        self.title, self.tries, self.say, self.say_ours = title, tries, say, ours or say

    def run(self, number: int) -> Defect:
        """Run the trials with both designs."""
        with hidden_thread_tracebacks():
            theirs = [TrialRun(one.make, one.trial, NOTES_TIMEOUTS) for one in self.tries]
            mine = [TrialRun(OURS, one.trial, OUR_TIMEOUTS) for one in self.tries]
            proven = all(
                one.clause.facts(broken) != one.clause.wanted == one.clause.facts(kept)
                for one, broken, kept in zip(self.tries, theirs, mine, strict=True)
            )
            said = self.say(*theirs), self.say_ours(*mine)
            for seen in theirs:
                _end_thread(seen.prefetcher)
        return Defect(number, self.title, *said, proven)


def _end_thread(prefetcher: object) -> None:
    """End the thread of a `NotesPrefetcher`, and the loop that waits for it."""
    if not isinstance(prefetcher, NotesPrefetcher):
        return
    while prefetcher.thread.is_alive() or not prefetcher.queue.empty():
        with suppress(Empty):
            prefetcher.queue.get(timeout=0.001)
    prefetcher.queue.put(None)


def _after_break(seen: TrialRun) -> str:
    thread = "thread alive" if seen.threads else "no thread"
    loader = "open" if seen.is_open else "closed"
    return f"after break: {thread}, {seen.kept} batches kept, loader {loader}"


def _peak(seen: TrialRun) -> str:
    return f"{seen.peak} batches on the GPU at a time"


def _kinds(threes: TrialRun, dicts: TrialRun, pageable: TrialRun) -> str:
    got = dicts.batches[0]
    got = f"a dict of {', '.join(got)}" if isinstance(got, dict) else got
    return (
        f"three tensors: {threes.ending}; a dict: the loop gets {got}; "
        f"pageable batches: {plural(pageable.warnings, 'warning')}"
    )


def _order(seen: TrialRun) -> str:
    served = [f"epoch {epoch}" for epoch in (0, 1) if seen.found == seen.source.checksums(epoch)]
    return (
        f"set_epoch(1), then the loop: {seen.early} batches read before the loop, order of "
        f"{served[0] if served else 'no epoch'} served"
    )


_LONG_QUEUE = partial(NotesPrefetcher, queue_size=4)

PROOFS = (
    DefectProof(
        "Copies and steps share a stream",
        lambda seen: f"overlap of the copies after the first: {percent(seen.hidden)}",
        ClauseTrial("overlap"),
    ),
    DefectProof(
        "The copy is only enqueued, and no event marks its end",
        lambda seen: f"{seen.garbage} of {seen.wanted} checksums wrong in a loop on its own stream",
        ClauseTrial("right", own_streams=1),
    ),
    DefectProof(
        "The obvious repair computes with garbage",
        lambda unwaited, late: (
            f"with a second stream: wrong in {unwaited.wrong_epochs} of {RUNS} runs; also with a "
            "wait, but without record_stream, and with losses read late: wrong in "
            f"{late.wrong_epochs}"
        ),
        ClauseTrial("losses read late", on_current(SideStream), late=()),
        ClauseTrial("losses read late", on_current(SideStream, wait=True), late=range(RUNS)),
        ours=lambda _, late: f"wrong in {late.wrong_epochs} of {RUNS} runs, losses read late",
    ),
    DefectProof(
        "An error of the loader ends the thread without a message",
        lambda seen: seen.ending,
        ClauseTrial("exception"),
    ),
    DefectProof(
        "The second epoch hangs",
        lambda seen: f"2 epochs of {seen.wanted}: {seen.ending}",
        ClauseTrial("second epoch", epochs=2),
    ),
    DefectProof(
        "Leaving the loop leaves thread, batches and loader behind",
        _after_break,
        ClauseTrial("break", _LONG_QUEUE, leave_after=1),
    ),
    DefectProof(
        "Every rank copies to GPU 0",
        lambda seen: f"rank 1: {seen.count} batches on the {', '.join(seen.places)}",
        ClauseTrial("device index"),
    ),
    DefectProof(
        "The queue fills the memory of the GPU",
        lambda seen: f"{_peak(seen)}: 4 queued, 1 waiting for space, 1 in use",
        ClauseTrial("memory in flight", _LONG_QUEUE, leave_after=1),
        ours=_peak,
    ),
    DefectProof(
        "Batches must be pairs in pinned memory, and nothing checks it",
        _kinds,
        ClauseTrial("nested batch", batches=lambda: [(a, b, a) for a, b in make_pairs()]),
        ClauseTrial(
            "nested batch", batches=lambda: [{"inputs": a, "targets": b} for a, b in make_pairs()]
        ),
        ClauseTrial("pageable memory"),
    ),
    DefectProof("It reads before the loop starts", _order, ClauseTrial("order")),
)


def prove_all() -> list[Defect]:
    """Prove the ten defects in order. A hanging loop takes less than half a second."""
    return [proof.run(number) for number, proof in enumerate(PROOFS, 1)]
