"""The contract of a prefetcher to the GPU: a list of clauses, simple ones first.

A clause is a trial and the messages for prefetchers that fail it. The check of exercise 09.2 tests
one clause after another. Each of the ten defects of `NotesPrefetcher` breaks a clause.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, NamedTuple

import torch

from course_stories.prefetchers.bench import DiskError, make_tensors
from course_stories.prefetchers.trial import (
    Make,
    PrefetcherTrial,
    TrialRun,
    hidden_thread_tracebacks,
)
from course_utils.hardware.gpu import map_leaves
from course_utils.teaching.exercise import expect

RUNS = 20
DEPTH = 2  # prefetched batches in trials that count the batches on the GPU


class Violation(NamedTuple):
    """A way to violate a clause, and the message for it."""

    when: Callable[[TrialRun], object]
    misconception: str  # a format string with the field `seen`
    next_step: str


def hangs(misconception: str, next_step: str) -> Violation:
    """Return the violation that is checked first: the loop does not end."""
    return Violation(lambda seen: seen.hung, misconception, next_step)


class Clause:
    """A trial, and its possible violations in the order of checking."""

    def __init__(self, trial: PrefetcherTrial, *ways: Violation):
        self.trial, self.ways = trial, ways

    def check(self, make: Make) -> None:
        """Fail the check if a prefetcher breaks the clause. Errors of its code are re-raised."""
        with closing(TrialRun(make, self.trial)) as seen:
            if seen.error is not None and self.trial.fails_at is None:
                raise seen.error
            if way := self.violation(seen):
                expect(False, way.misconception.format(seen=seen), way.next_step)

    def violation(self, seen: TrialRun) -> Violation | None:
        """Return the first violation in a run of this trial or a similar one, or None."""
        return next((way for way in self.ways if way.when(seen)), None)


def check_all(make: Make, clauses: Iterable[Clause]) -> None:
    """Check a prefetcher against one clause after another."""
    with hidden_thread_tracebacks():
        for clause in clauses:
            clause.check(make)


Pair = namedtuple("Pair", ["energy", "kind"])  # a tensor and a string


def nested_batches() -> list[Any]:
    """Return batches that are dicts, with tensors at two depths and values of other types."""
    return [
        {"pulses": torch.randn(9, 4), "ids": ["event", n], "label": Pair(torch.randn(2), "track")}
        for n in range(3)
    ]


def mixed_batches() -> list[Any]:
    """Return batches that are a tensor, a pair or a dict."""
    several = [
        (one["pulses"], (one["pulses"], one["label"].energy), one) for one in nested_batches()
    ]
    return [batch for shapes in several for batch in shapes]


def _changes_shape(seen: TrialRun) -> bool:
    return any(
        _shape(got) != _shape(batch) for got, batch in zip(seen.batches, seen.source, strict=False)
    )


def _shape(batch: Any) -> str:
    return repr(map_leaves(lambda leaf: "tensor" if hasattr(leaf, "device") else leaf, batch))


_NEVER_ENDS = hangs("The loop never ends.", "Stop when the loader is exhausted.")
_RESTART = "Start again in every __iter__. Make it a generator, with yield."

CONTRACT = {
    "right": Clause(
        PrefetcherTrial(),
        hangs(
            "The loop waits forever. Either `error` is never set (a `for` swallows StopIteration), "
            "or `staged` is never emptied, or your thread expects pairs, gets a tensor and dies.",
            "Call next(batches), yield the staged batches even after an error, and do not start a "
            "thread.",
        ),
        Violation(
            lambda seen: seen.nothing,
            "The loop gets None {seen.nothing} times instead of a batch.",
            "End hand_over with `return batch`, because the loop gets its return value.",
        ),
        Violation(
            lambda seen: seen.garbage,
            "{seen.garbage} of {seen.count} steps read garbage, because they do not wait for their "
            "copies.",
            "Record an event after each copy. In hand_over, call "
            "gpu.current_stream().wait_event(event).",
        ),
        Violation(
            lambda seen: seen.count != seen.wanted,
            "The loader has {seen.wanted} batches, but the loop gets {seen.count}.",
            "When the loader is exhausted, yield the batches that are still staged.",
        ),
        Violation(
            lambda seen: seen.wrong_epochs,
            "The batches are changed, or their order differs from the order of the loader.",
            "Yield the batches in the order in which you copy them. Use a deque with append() and "
            "popleft().",
        ),
    ),
    "nested batch": Clause(
        PrefetcherTrial(nested_batches, keep=True),
        hangs(
            "The batches are dicts, and the loop waits forever. Your code expects pairs.",
            "Call gpu.upload(batch). It copies batches of any structure, and keeps other values.",
        ),
        Violation(
            lambda seen: _changes_shape(seen) or seen.wrong_epochs,
            "A batch that is a dict with a named tuple and a list of IDs arrives with another "
            "structure.",
            "Call gpu.upload(batch), which keeps the structure. Use record_stream on tensors only.",
        ),
    ),
    "order": Clause(
        PrefetcherTrial(set_epoch=1),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.wrong_epochs,
            "After set_epoch(1) the loop still gets batches in the order of epoch 0, because your "
            "code reads from the loader before the loop starts.",
            "Do not use the loader in __init__. Call iter(loader) in __iter__.",
        ),
    ),
    "memory in flight": Clause(
        PrefetcherTrial(depth=DEPTH, ahead=DEPTH + 1),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.peak > DEPTH + 1,
            f"With depth={DEPTH} up to {{seen.peak}} batches are on the GPU at a time, but "
            f"{DEPTH + 1} are enough. Count the batches in a queue, in a thread, and in your "
            "variables.",
            "Keep references to staged batches only. Write `yield "
            "self.hand_over(*staged.popleft())`.",
        ),
    ),
    "depth": Clause(
        PrefetcherTrial(depth=DEPTH, ahead=DEPTH),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.peak <= DEPTH,
            f"With depth={DEPTH} the GPU should hold {DEPTH + 1} batches most of the time, but "
            "yours never holds more than {seen.peak}. Too few batches are prefetched.",
            "Before you yield a batch, stage more until self.depth batches are in flight.",
        ),
    ),
    "second epoch": Clause(
        PrefetcherTrial(epochs=3),
        hangs(
            "The second epoch waits forever, because the code that fills it ran only once.",
            _RESTART,
        ),
        Violation(
            lambda seen: seen.counts != [seen.wanted] * seen.trial.epochs,
            "Three epochs serve {seen.counts} batches, but each epoch has {seen.wanted}.",
            _RESTART,
        ),
        Violation(
            lambda seen: seen.machine.streams.value >= seen.trial.epochs,
            "Three epochs create {seen.machine.streams.value} streams. Each stream keeps its own "
            "device memory, so the memory grows with every epoch.",
            "Create the stream once, in __init__, and keep it.",
        ),
    ),
    "exception": Clause(
        PrefetcherTrial(fails_at=3, depth=DEPTH),
        hangs(
            "The loader raises an error, and the loop never ends. Either your thread died without "
            "a message, or a `while` waits for a batch that never arrives.",
            "Do not start a thread, or send the error through the queue and raise it in the loop.",
        ),
        Violation(
            lambda seen: seen.error is None,
            "The loader raises an error after 3 batches, but the loop ends normally after "
            "{seen.count}.",
            "Store the error, stop reading, and raise the error after the staged batches.",
        ),
        Violation(
            lambda seen: not isinstance(seen.error, DiskError),
            "The loader raises a DiskError, but the loop gets {seen.said}.",
            "Raise the original error of the loader.",
        ),
        Violation(
            lambda seen: seen.count != 3,
            "The loader yields 3 batches and then raises an error, but the loop gets {seen.count} "
            "of them. The error overtakes the staged batches.",
            "Catch the error, yield the staged batches, then raise it.",
        ),
    ),
    "error at once": Clause(
        PrefetcherTrial(fails_at=0),
        _NEVER_ENDS,
        Violation(
            lambda seen: not isinstance(seen.error, DiskError),
            "The loader raises an error before its first batch, but the loop gets {seen.said}. "
            "`staged` is empty in this case, and with an empty loader.",
            "Test `if staged:` before you yield a batch.",
        ),
    ),
    "short loader": Clause(
        PrefetcherTrial(lambda: make_tensors(1), depth=DEPTH),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.count != seen.wanted,
            f"The loader has 1 batch, which is fewer than depth={DEPTH}, but the loop gets "
            "{seen.count}.",
            "When the loader is exhausted, yield all staged batches, even if there are few.",
        ),
    ),
    "break": Clause(
        PrefetcherTrial(leave_after=2),
        hangs(
            "The loop hangs in its break. It waits for a thread that waits for space in a queue.",
            "Do not start a thread, or let it check a stop flag while it waits.",
        ),
        Violation(
            lambda seen: seen.threads,
            "Long after a break your thread is still alive, with the loader and its workers. It "
            "waits for space in a queue that is never emptied.",
            "Do not start a thread. Leaving the loop then closes your generator.",
        ),
        Violation(
            lambda seen: seen.is_open,
            "After a break the loader is still open, because something keeps its iterator.",
            "Keep the loader's iterator in a local variable of __iter__, not in self.",
        ),
        Violation(
            lambda seen: seen.kept,
            "After a break {seen.kept} of your batches are still on the GPU.",
            "Keep staged batches in a local variable of __iter__. The end of the generator frees "
            "them.",
        ),
    ),
    "device index": Clause(
        PrefetcherTrial(gpus=2),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.places != {seen.machine.gpus[1].name},
            "The loop runs on GPU 1, but its batches are on GPU 0. Each thread has its own current "
            "GPU, and a new thread starts with GPU 0.",
            "Get the GPU once, in __init__: self.gpu = devices.current().",
        ),
    ),
    "stream of the loop": Clause(
        PrefetcherTrial(own_stream=True, epochs=2),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.garbage,
            "A loop that runs on a separate stream reads garbage {seen.garbage} times. Its stream "
            "does not wait for the copies.",
            "In hand_over, get the stream of the loop: self.gpu.current_stream().",
        ),
    ),
    "losses read late": Clause(
        PrefetcherTrial(
            mixed_batches, epochs=RUNS, depth=1, late=range(0, RUNS, 2), own_stream=True
        ),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.wrong_epochs,
            f"{{seen.wrong_epochs}} of {RUNS} epochs are wrong, all with losses that are read "
            "late. When Python drops a batch, the next copy reuses its memory while a step still "
            "reads it.",
            "In hand_over, call leaf.record_stream(gpu.current_stream()) for every leaf that has "
            "this method. Do not pass the copy stream.",
        ),
    ),
    "overlap": Clause(
        PrefetcherTrial(depth=1, ahead=1, timed=True),
        _NEVER_ENDS,
        Violation(
            lambda seen: seen.hidden < 0.8 and seen.machine.blocking.value,
            "Only {seen.hidden:.0%} of the copying overlaps with steps, because the program waits "
            "for each copy before it launches the step.",
            "Call gpu.upload(batch, non_blocking=True).",
        ),
        Violation(
            lambda seen: seen.hidden < 0.8,
            "Only {seen.hidden:.0%} of the copying overlaps with steps, but the target is 80 %. "
            "Either copies and steps share a stream, or steps wait for later copies, or the next "
            "copy starts only when the loop requests it.",
            "Use a separate stream for the copies and an event per copy. Stage the next batch "
            "before you yield the current one.",
        ),
    ),
}

PAGEABLE = Clause(  # no exercise checks this clause
    PrefetcherTrial(pinned=False),
    Violation(
        lambda seen: not seen.warnings,
        "Batches in pageable memory block the program, and there is no warning.",
        "Warn if batches are not pinned.",
    ),
)
