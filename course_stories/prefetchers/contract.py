"""What a prefetcher to the GPU has to keep: clauses, the simple ones first.

A clause is a trial, and what is said of a prefetcher that does not keep it. The check of exercise
09.2 walks through the clauses; the ten defects of the notes' prefetcher are clauses that it breaks.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any, NamedTuple

import torch

from course_stories.prefetchers.bench import DiskError, make_tensors
from course_stories.prefetchers.trial import Make, PrefetcherTrial, Seen, quiet_threads
from course_utils.hardware.gpu import map_leaves
from course_utils.teaching.exercise import expect

RUNS = 20
DEPTH = 2  # batches ahead, where those on the GPU are counted


class Broken(NamedTuple):
    """A way to break a clause."""

    when: Callable[[Seen], object]
    misconception: str  # a format string for what was `seen`
    next_step: str


def hangs(misconception: str, next_step: str) -> Broken:
    """Return the way that comes first: the loop has no end."""
    return Broken(lambda seen: seen.hung, misconception, next_step)


class Clause:
    """A trial, and the ways not to pass it; the first that fits is said."""

    def __init__(self, trial: PrefetcherTrial, *ways: Broken):
        self.trial, self.ways = trial, ways

    def judge(self, make: Make) -> None:
        """Refuse a prefetcher that breaks it; raise an error of its own code."""
        with closing(Seen(make, self.trial)) as seen:
            if seen.error is not None and self.trial.fails_at is None:
                raise seen.error
            if way := self.broken(seen):
                expect(False, way.misconception.format(seen=seen), way.next_step)

    def broken(self, seen: Seen) -> Broken | None:
        """Return in which way what was seen, in this trial or one like it, breaks the clause."""
        return next((way for way in self.ways if way.when(seen)), None)


def judge_all(make: Make, clauses: Iterable[Clause]) -> None:
    """Judge a prefetcher by clause after clause."""
    with quiet_threads():
        for clause in clauses:
            clause.judge(make)


Pair = namedtuple("Pair", ["energy", "kind"])  # a tensor, and a word beside it


def nested_batches() -> list[Any]:
    """Make batches that are dicts, with tensors at two depths and things that are no tensors."""
    return [
        {"pulses": torch.randn(9, 4), "ids": ["event", n], "label": Pair(torch.randn(2), "track")}
        for n in range(3)
    ]


def mixed_batches() -> list[Any]:
    """Make batches that are a tensor, a pair or a dict."""
    several = [
        (one["pulses"], (one["pulses"], one["label"].energy), one) for one in nested_batches()
    ]
    return [batch for shapes in several for batch in shapes]


def _changes_shape(seen: Seen) -> bool:
    return any(
        _shape(got) != _shape(batch) for got, batch in zip(seen.batches, seen.source, strict=False)
    )


def _shape(batch: Any) -> str:
    return repr(map_leaves(lambda leaf: "tensor" if hasattr(leaf, "device") else leaf, batch))


_NEVER_ENDS = hangs("The loop never ends.", "Stop when the loader is through.")
_ANEW = "Begin anew in every __iter__: make it a generator, with yield."

CONTRACT = {
    "right": Clause(
        PrefetcherTrial(),
        hangs(
            "The loop waits for ever: `error` is never set (a `for` swallows StopIteration), "
            "`staged` is never emptied, or a thread of yours takes a tensor for a pair, and dies.",
            "Ask with next(batches), hand over what is staged after an error too, start no thread.",
        ),
        Broken(
            lambda seen: seen.nothing,
            "The loop gets None {seen.nothing} times in place of a batch.",
            "End hand_over with `return batch`: what it returns is what the loop gets.",
        ),
        Broken(
            lambda seen: seen.garbage,
            "{seen.garbage} of {seen.count} steps computed with garbage: they do not wait for "
            "their copies.",
            "Record an event behind each copy; at hand-over, gpu.current_stream().wait_event(that "
            "event).",
        ),
        Broken(
            lambda seen: seen.count != seen.wanted,
            "The loader has {seen.wanted} batches, the loop gets {seen.count}.",
            "What was copied ahead is handed over when the loader is through: the last batches "
            "too.",
        ),
        Broken(
            lambda seen: seen.spoilt,
            "The batches come out changed or in another order than the loader has them.",
            "Hand over in the order in which you copy: a deque, append() and popleft().",
        ),
    ),
    "nested batch": Clause(
        PrefetcherTrial(nested_batches, keep=True),
        hangs(
            "A batch is a dict, and the loop waits for ever: something expects a pair of tensors.",
            "gpu.upload(batch) copies any batch, however nested, and leaves the rest as it is.",
        ),
        Broken(
            lambda seen: _changes_shape(seen) or seen.spoilt,
            "A batch that is a dict, with a named tuple and a list of ids in it, does not come out "
            "as it went in.",
            "gpu.upload(batch) keeps the shape of a batch; record_stream is for its tensors only.",
        ),
    ),
    "order": Clause(
        PrefetcherTrial(set_epoch=1),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.spoilt,
            "set_epoch(1) before the loop, and the loop gets the order of epoch 0, at least at "
            "first: you have asked the loader for batches before anybody asked you.",
            "Leave the loader alone in __init__; call iter(loader) in __iter__.",
        ),
    ),
    "memory in flight": Clause(
        PrefetcherTrial(depth=DEPTH, ahead=DEPTH + 1),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.peak > DEPTH + 1,
            f"With depth={DEPTH} there are {{seen.peak}} batches on the GPU at a time; {DEPTH + 1} "
            "are enough: what the loop works on, and what is copied ahead. Count what waits in a "
            "queue, what a thread has in hand, and the batch that a variable of yours still holds.",
            "Keep only what is staged, and hand a batch over without keeping it: yield "
            "self.hand_over(*staged.popleft()).",
        ),
    ),
    "depth": Clause(
        PrefetcherTrial(depth=DEPTH, ahead=DEPTH),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.peak <= DEPTH,
            f"With depth={DEPTH} the GPU holds {DEPTH + 1} batches at most times, and yours never "
            "more than {seen.peak}: fewer than asked for are copied ahead.",
            "Before a batch is handed over, stage until self.depth more are on their way.",
        ),
    ),
    "second epoch": Clause(
        PrefetcherTrial(epochs=3),
        hangs(
            "The second epoch waits for ever: what fills it was started once and is through.",
            _ANEW,
        ),
        Broken(
            lambda seen: seen.counts != [seen.wanted] * seen.trial.epochs,
            "Three epochs serve {seen.counts} batches; the loader has {seen.wanted} in each.",
            _ANEW,
        ),
        Broken(
            lambda seen: seen.machine.streams.value >= seen.trial.epochs,
            "Three epochs make {seen.machine.streams.value} streams. Each has device memory of its "
            "own, which no other stream gets: memory grows from epoch to epoch.",
            "Make the stream once, in __init__, and keep it.",
        ),
    ),
    "exception": Clause(
        PrefetcherTrial(fails_at=3, depth=DEPTH),
        hangs(
            "The loader raises, and the loop never ends: a thread that the error has ended tells "
            "nobody, or a `while` waits for what does not come.",
            "Without a thread it comes by itself; with one, send it through the queue and raise "
            "it.",
        ),
        Broken(
            lambda seen: seen.error is None,
            "The loader raises after 3 batches, and the loop ends after {seen.count} as if all "
            "were well.",
            "Keep the error, ask the loader no more, and raise it after the batches before it.",
        ),
        Broken(
            lambda seen: not isinstance(seen.error, DiskError),
            "The loader raises a DiskError, the loop gets {seen.said}.",
            "Raise the very error of the loader.",
        ),
        Broken(
            lambda seen: seen.count != 3,
            "The loader gives 3 batches and raises then; the loop gets {seen.count} of them. The "
            "error overtakes what was copied ahead.",
            "Catch it, hand over what is staged, then raise it.",
        ),
    ),
    "error at once": Clause(
        PrefetcherTrial(fails_at=0),
        _NEVER_ENDS,
        Broken(
            lambda seen: not isinstance(seen.error, DiskError),
            "The loader raises before its first batch, and the loop gets {seen.said}. Nothing is "
            "staged then, and neither is it where a loader has no batches.",
            "if staged: only then is there one to hand over.",
        ),
    ),
    "short loader": Clause(
        PrefetcherTrial(lambda: make_tensors(1), depth=DEPTH),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.count != seen.wanted,
            f"The loader has 1 batch, which is fewer than depth={DEPTH}, and the loop gets "
            "{seen.count}.",
            "Hand over what is staged when the loader is through, however little that is.",
        ),
    ),
    "break": Clause(
        PrefetcherTrial(leave_after=2),
        hangs(
            "The loop does not get out of its break: it waits for a thread that waits for room.",
            "Tell the thread to stop, and let it look while it waits; or do without a thread.",
        ),
        Broken(
            lambda seen: seen.threads,
            "Long after a break a thread is still there, waiting for room in a queue that nobody "
            "empties, and with it the loader and its workers.",
            "Without a thread, leaving the loop closes your generator, and that is all.",
        ),
        Broken(
            lambda seen: seen.is_open,
            "After a break the loader is still open: somebody holds its iterator.",
            "Keep the loader's iterator in __iter__ alone, not in self.",
        ),
        Broken(
            lambda seen: seen.kept,
            "After a break {seen.kept} of your batches are still on the GPU.",
            "Keep what is staged in a local variable of __iter__: it goes when the generator ends.",
        ),
    ),
    "device index": Clause(
        PrefetcherTrial(gpus=2),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.places != {seen.machine.gpus[1].name},
            "The loop runs on GPU 1, and its batches are on GPU 0. The current GPU belongs to a "
            "thread: in another one it is GPU 0.",
            "Ask for it once, in __init__: self.gpu = devices.current().",
        ),
    ),
    "stream of the loop": Clause(
        PrefetcherTrial(own_stream=True, epochs=2),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.garbage,
            "A loop that works on a stream of its own computes with garbage {seen.garbage} times: "
            "another stream waits for the copies, or none.",
            "At hand-over ask for the stream of the loop: self.gpu.current_stream().",
        ),
    ),
    "losses read late": Clause(
        PrefetcherTrial(
            mixed_batches, epochs=RUNS, depth=1, late=range(0, RUNS, 2), own_stream=True
        ),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.spoilt,
            f"Wrong in {{seen.spoilt}} of {RUNS} epochs, all of them where the losses are read "
            "late: the memory of a batch that Python has dropped is given to the next copy, while "
            "a step still reads it.",
            "At hand-over, for every leaf that has it (an emulated GPU's are no torch.Tensor): "
            "leaf.record_stream(gpu.current_stream()), not the stream of the copies.",
        ),
    ),
    "overlap": Clause(
        PrefetcherTrial(depth=1, ahead=1, timed=True),
        _NEVER_ENDS,
        Broken(
            lambda seen: seen.hidden < 0.8 and seen.machine.blocking.value,
            "{seen.hidden:.0%} of the copying is hidden: the program waits for each copy, and "
            "launches the step only then.",
            "gpu.upload(batch, non_blocking=True).",
        ),
        Broken(
            lambda seen: seen.hidden < 0.8,
            "{seen.hidden:.0%} of the copying is hidden; the target is 80 %. Either "
            "copies and steps share a stream, or a step waits for more than its own copy, or the "
            "next copy is launched only when the loop asks for it.",
            "A stream for the copies, an event for each of them, and stage the next batch before "
            "you yield this one.",
        ),
    ),
}

PAGEABLE = Clause(  # what the notes ask for and nobody checks; no exercise asks for it
    PrefetcherTrial(pinned=False),
    Broken(
        lambda seen: not seen.warnings,
        "Batches in pageable memory hold the program up, and nobody says so.",
        "Warn where batches are not pinned.",
    ),
)
