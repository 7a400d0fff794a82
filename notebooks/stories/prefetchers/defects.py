"""The prefetcher of the notes, its ten defects, and the designs on the way to `CudaPrefetcher`.

`NotesPrefetcher` has the design that a lecture note prints (the code is ours, the idea is not). The
functions below it are steps between: each mends one thing, and breaks or leaves another. A defect
is a clause of the contract that the notes break, and `CudaPrefetcher` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, Queue
from threading import Thread
from typing import Any, NamedTuple

from course_utils.hardware.gpu import Accelerator
from course_utils.loading.prefetch import CudaPrefetcher
from course_utils.teaching.exercise import quiet_threads
from course_utils.words import percent, plural
from notebooks.stories.prefetchers.bench import Machine, Source, make_pairs
from notebooks.stories.prefetchers.contract import CONTRACT, PAGEABLE, RUNS
from notebooks.stories.prefetchers.trial import Make, Patience, Seen

NOTES_HANG = Patience(hang=0.4, leave=0.1)  # their thread is dead or stuck then
OURS_DOES_NOT = Patience(hang=30, settle=0.01)  # and has no thread to wait for
_CLAUSES = {clause.name: clause for clause in (*CONTRACT, PAGEABLE)}


class NotesPrefetcher:
    """A thread copies batches to the device, into a queue from which the loop takes them."""

    def __init__(self, loader: Iterable[Any], devices: Machine, queue_size: int = 3):
        """Start the thread, which asks `loader` for its first batch at once."""
        self.loader, self.devices = loader, devices
        self.queue: Queue[Any] = Queue(queue_size)
        self.thread = Thread(target=self._fill, daemon=True, name="notes prefetcher")
        self.thread.start()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.queue.get, None)

    def _fill(self) -> None:
        for inputs, targets in self.loader:
            gpu = self.devices.current()  # as torch.device("cuda"), without a number
            inputs = gpu.upload(inputs, non_blocking=True)
            targets = gpu.upload(targets, non_blocking=True)
            self.queue.put((inputs, targets))
        self.queue.put(None)  # the end


def default_stream(gpu: Accelerator, batches: Iterable[Any]) -> Iterator[Any]:
    """Copy one batch ahead, on the stream of the steps: right, and nothing is hidden."""
    return _one_ahead(lambda batch: gpu.upload(batch, non_blocking=True), batches)


def side_stream(gpu: Accelerator, batches: Iterable[Any], *, wait: bool = False) -> Iterator[Any]:
    """Copy one batch ahead, on a stream of its own: a step that does not wait reads garbage."""
    copies = gpu.Stream()

    def stage(batch: Any) -> tuple[Any, Any]:
        with gpu.stream(copies):
            return gpu.upload(batch, non_blocking=True), copies.record_event()

    for batch, arrived in _one_ahead(stage, batches):
        if wait:
            gpu.current_stream().wait_event(arrived)
        yield batch
        del batch  # or it would be kept until the copy after the next


# right, until a batch is dropped that is still read
side_stream_with_wait = partial(side_stream, wait=True)


def _one_ahead(stage: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    ready = None
    for batch in batches:
        ready, before = stage(batch), ready
        if before is not None:
            yield before
        del before
    if ready is not None:
        yield ready


class Defect(NamedTuple):
    """One defect, and what was measured."""

    number: int
    title: str
    notes: str  # seen with the design of the notes
    ours: str  # seen with CudaPrefetcher
    proven: bool  # the notes break each clause that was tried, and ours keeps it


class Again:
    """A design that is a generator, begun anew in each epoch."""

    def __init__(self, design: Callable[..., Iterator[Any]], loader: Source, devices: Machine):
        self.design, self.loader, self.gpu = design, loader, devices.current()

    def __iter__(self) -> Iterator[Any]:
        return self.design(self.gpu, self.loader)


class Try:
    """A clause, tried in a way of its own; batches are pairs, which is all that the notes take."""

    def __init__(self, clause: str, make: Make = NotesPrefetcher, **trial: Any):
        self.clause, self.make = _CLAUSES[clause], make
        self.trial = replace(self.clause.trial, **{"batches": make_pairs, "depth": None, **trial})


@dataclass(frozen=True)
class Proof:
    """A defect that is still to be shown: what is tried, and how to say what was seen."""

    title: str
    tries: tuple[Try, ...]
    notes: Callable[..., str]
    ours: Callable[..., str] | None = None  # None: the same words

    def run(self, number: int) -> Defect:
        """Try the design of the notes, and ours."""
        with quiet_threads():
            theirs = [Seen(one.make, one.trial, NOTES_HANG) for one in self.tries]
            mine = [Seen(_ours, one.trial, OURS_DOES_NOT) for one in self.tries]
            proven = all(
                one.clause.broken(broken) and not one.clause.broken(kept)
                for one, broken, kept in zip(self.tries, theirs, mine, strict=True)
            )
            said = self.notes(*theirs), (self.ours or self.notes)(*mine)
            for seen in theirs:
                _set_free(seen.prefetcher)
        return Defect(number, self.title, *said, proven)


def _ours(loader: Source, devices: Machine) -> CudaPrefetcher:
    return CudaPrefetcher(loader, devices.current())


def _set_free(prefetcher: object) -> None:
    """End the thread of a prefetcher of the notes, and the loop that waits for it."""
    if not isinstance(prefetcher, NotesPrefetcher):
        return
    while prefetcher.thread.is_alive() or not prefetcher.queue.empty():
        with suppress(Empty):
            prefetcher.queue.get(timeout=0.001)
    prefetcher.queue.put(None)


def _left(seen: Seen) -> str:
    thread = "thread alive" if seen.threads else "no thread"
    loader = "open" if seen.is_open else "closed"
    return f"after break: {thread}, {seen.kept} batches kept, loader {loader}"


def _kinds(threes: Seen, dicts: Seen, pageable: Seen) -> str:
    got = dicts.batches[0]
    got = f"a dict of {', '.join(got)}" if isinstance(got, dict) else got
    return (
        f"three tensors: {threes.ending}; a dict: the loop gets {got}; "
        f"pageable batches: {plural(pageable.warnings, 'warning')}"
    )


def _order(seen: Seen) -> str:
    served = [f"epoch {epoch}" for epoch in (0, 1) if seen.found == seen.source.checksums(epoch)]
    return (
        f"set_epoch(1), then the loop: {seen.early} batches read before the loop; the order served "
        f"was that of {served[0] if served else 'no epoch'}"
    )


PROOFS = (
    Proof(
        "Copies and steps are on one stream",
        (Try("overlap"),),
        lambda seen: f"hidden, of the copies after the first: {percent(seen.hidden)}",
    ),
    Proof(
        "The copy is only enqueued, and no event tells of its end",
        (Try("right", own_stream=True),),
        lambda seen: f"{seen.garbage} of {seen.wanted} checksums wrong in a loop on its own stream",
    ),
    Proof(
        "The obvious repair computes with garbage",
        (
            Try("losses read late", partial(Again, side_stream), late=()),
            Try("losses read late", partial(Again, side_stream_with_wait), late=range(RUNS)),
        ),
        lambda unwaited, late: (
            f"with a second stream: wrong in {unwaited.spoilt} of {RUNS} runs; with a wait too, "
            f"but no record_stream, and losses read late: wrong in {late.spoilt}"
        ),
        lambda _, late: f"wrong in {late.spoilt} of {RUNS} runs, losses read late",
    ),
    Proof(
        "An error of the loader ends the thread, and nobody hears of it",
        (Try("exception"),),
        lambda seen: seen.ending,
    ),
    Proof(
        "The second epoch hangs",
        (Try("second epoch", epochs=2),),
        lambda seen: f"2 epochs of {seen.wanted}: {seen.ending}",
    ),
    Proof(
        "Leaving the loop leaves thread, batches and loader behind",
        (Try("break", partial(NotesPrefetcher, queue_size=4), leave_after=1),),
        _left,
    ),
    Proof(
        "Every rank copies to GPU 0",
        (Try("device index"),),
        lambda seen: f"rank 1: {seen.count} batches on the {', '.join(seen.places)}",
    ),
    Proof(
        "The queue fills the memory of the GPU",
        (Try("memory in flight", partial(NotesPrefetcher, queue_size=4), leave_after=1),),
        lambda seen: (
            f"{seen.peak} batches on the GPU at a time: 4 queued, 1 waiting for a place, 1 in use"
        ),
        lambda seen: f"{seen.peak} batches on the GPU at a time",
    ),
    Proof(
        "Batches are pairs in pinned memory, and nobody checks",
        (
            Try("nested batch", batches=lambda: [(a, b, a) for a, b in make_pairs()]),
            Try(
                "nested batch",
                batches=lambda: [{"inputs": a, "targets": b} for a, b in make_pairs()],
            ),
            Try("pageable memory"),
        ),
        _kinds,
    ),
    Proof(
        "It reads before the loop begins",
        (Try("order"),),
        _order,
    ),
)


def prove_all() -> list[Defect]:
    """Prove the ten, in the order of their numbers; what hangs takes less than half a second."""
    return [proof.run(number) for number, proof in enumerate(PROOFS, 1)]
