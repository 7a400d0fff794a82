"""The contract of a prefetcher to the GPU: a table of clauses, simple ones first.

A clause is a trial, and the result of a correct prefetcher in this trial. The check of exercise
09.2 compares one clause after another. Each of the ten defects of `QueuePrefetcher` breaks a
clause.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from course_utils.stories.prefetchers.bench import LABELS, PULSES, make_tensors, pinned
from course_utils.stories.prefetchers.trial import Make, PrefetcherTrial, TrialRun, structure

RUNS = 20
DEPTH, DEEP = 2, 5  # prefetched batches in trials that count the batches on the GPU

Pair = namedtuple("Pair", ["energy", "kind"])  # a tensor and a string


@dataclass
class Hits:
    """Tensors of whole numbers."""

    sensors: torch.Tensor
    flags: torch.Tensor


def nested_batches() -> list[Any]:
    """Return batches that are dicts, with tensors at two depths and values of other types."""
    return pinned(
        [
            {"pulses": torch.randn(9, 4), "ids": ["event", n], "label": Pair(torch.randn(2), "a")}
            for n in range(3)
        ]
    )


def mixed_batches() -> list[Any]:
    """Return batches that are a tensor of floats or integers, a pair, a dict or a dataclass."""
    several = [
        (
            one["pulses"],
            (one["pulses"], one["label"].energy),
            one,
            torch.arange(n, 40 + n),
            Hits(torch.arange(n, 9 + n), torch.full((8,), n, dtype=torch.uint8)),
        )
        for n, one in enumerate(nested_batches(), 1)
    ]
    return pinned([batch for shapes in several for batch in shapes])


def _keeps_structure(seen: TrialRun) -> bool:
    pairs = zip(seen.structures, seen.source, strict=False)
    return not seen.wrong_epochs and all(got == structure(batch) for got, batch in pairs)


def _error(seen: TrialRun) -> str:
    if seen.hung:
        return "it hangs"
    if seen.errors > 1:
        return "the old error again in the next epoch"
    if seen.error is seen.source.error:
        return "the error of the loader"
    return f"another error, {seen.said}" if seen.said else "no error"


FACTS: dict[str, Callable[[TrialRun], Any]] = {
    "the loop hangs": lambda seen: seen.hung,
    "batches": lambda seen: seen.counts,
    "batches of each epoch": lambda seen: (
        "all" if seen.counts == [seen.wanted] * seen.trial.epochs else seen.counts
    ),
    "times that the loop gets None": lambda seen: seen.nothing,
    "steps that read garbage": lambda seen: seen.garbage,
    "epochs with wrong checksums": lambda seen: seen.wrong_epochs,
    "the structure of the batches is kept": _keeps_structure,
    "the inner loop and the outer loop get all batches": lambda seen: (
        seen.found == [(sums := seen.source.checksums())[0], *sums, *sums[1:]]
    ),
    "new streams in each epoch": lambda seen: seen.machine.streams.value // seen.trial.epochs,
    "then it gets": _error,
    "most batches on the GPU": lambda seen: max(seen.peak, DEPTH + 1),
    "batches in flight": lambda seen: min(seen.peak, DEEP + 1),
    "threads left": lambda seen: len(seen.threads),
    "the loader is open": lambda seen: seen.is_open,
    "batches left on the GPU": lambda seen: seen.kept,
    "the batches are on the GPU of the loop": lambda seen: (
        seen.places == {seen.machine.gpus[-1].name}
    ),
    "overlap of the copies": lambda seen: (
        "80 % or more" if seen.hidden >= 0.8 else f"{seen.hidden:.0%}"
    ),
    "warnings": lambda seen: min(seen.warnings, 1),
}


class Clause(NamedTuple):
    """A trial with a short description, and the facts that a right prefetcher shows in it."""

    name: str
    trial: PrefetcherTrial
    wanted: dict[str, Any]

    def __str__(self) -> str:
        return self.name

    def facts(self, seen: TrialRun) -> dict[str, Any]:
        """Return the facts of a run of this trial, or of a similar one."""
        return {fact: FACTS[fact](seen) for fact in self.wanted}

    def observe(self, make: Make) -> dict[str, Any]:
        """Run the trial and return its facts. Errors of the prefetcher's code are re-raised."""
        with closing(TrialRun(make, self.trial)) as seen:
            if seen.error is not None and self.trial.fails_at is None:
                raise seen.error
            return self.facts(seen)


_ALL = {"the loop hangs": False, "batches of each epoch": "all"}
_RIGHT = {
    **_ALL,
    "times that the loop gets None": 0,
    "steps that read garbage": 0,
    "epochs with wrong checksums": 0,
}
_LEFT = {
    "the loop hangs": False,
    "threads left": 0,
    "the loader is open": False,
    "batches left on the GPU": 0,
}
_OVERLAPS = {"the loop hangs": False, "overlap of the copies": "80 % or more"}

CONTRACT = {
    "right": Clause("batches of one tensor", PrefetcherTrial(), _RIGHT),
    "nested batch": Clause(
        "batches that are dicts with a named tuple and a list",
        PrefetcherTrial(nested_batches),
        {**_ALL, "the structure of the batches is kept": True},
    ),
    "order": Clause(
        "set_epoch(1) before the loop",
        PrefetcherTrial(set_epoch=1),
        {"epochs with wrong checksums": 0},
    ),
    "memory in flight": Clause(
        f"depth={DEPTH}",
        PrefetcherTrial(depth=DEPTH, ahead=DEPTH + 1),
        {"the loop hangs": False, "most batches on the GPU": DEPTH + 1},
    ),
    "depth": Clause(
        f"depth={DEEP}",
        PrefetcherTrial(depth=DEEP, ahead=DEEP),
        {"the loop hangs": False, "batches in flight": DEEP + 1},
    ),
    "second epoch": Clause(
        "three epochs", PrefetcherTrial(epochs=3), {**_ALL, "new streams in each epoch": 0}
    ),
    "two loops": Clause(
        "a loop inside a loop over the same prefetcher",
        PrefetcherTrial(nested=True),
        {"the loop hangs": False, "the inner loop and the outer loop get all batches": True},
    ),
    "exception": Clause(
        "an error of the loader after 3 batches",
        PrefetcherTrial(fails_at=3, depth=DEPTH),
        {"batches": [3], "then it gets": "the error of the loader"},
    ),
    "error at once": Clause(
        "an error of the loader before its first batch",
        PrefetcherTrial(fails_at=0),
        {"batches": [0], "then it gets": "the error of the loader"},
    ),
    "after an error": Clause(
        "an epoch with an error after 3 batches, and one without",
        PrefetcherTrial(fails_at=3, epochs=2),
        {"batches": [3, 8], "then it gets": "the error of the loader"},
    ),
    "empty loader": Clause("a loader without batches", PrefetcherTrial(lambda: []), _ALL),
    "short loader": Clause(
        f"a loader with 1 batch and depth={DEPTH}",
        PrefetcherTrial(lambda: make_tensors(1), depth=DEPTH),
        _ALL,
    ),
    "break": Clause("a break after 2 batches", PrefetcherTrial(leave_after=2), _LEFT),
    "device index": Clause(
        "a loop on the second of two GPUs",
        PrefetcherTrial(gpus=2),
        {"the loop hangs": False, "the batches are on the GPU of the loop": True},
    ),
    "stream of the loop": Clause(
        "a loop whose steps alternate between two streams",
        PrefetcherTrial(own_streams=2, epochs=2),
        {"the loop hangs": False, "steps that read garbage": 0},
    ),
    "losses read late": Clause(
        f"{RUNS} epochs, in every second one the losses are read at the end",
        PrefetcherTrial(mixed_batches, epochs=RUNS, depth=1, late=range(0, RUNS, 2), own_streams=1),
        {"the loop hangs": False, "epochs with wrong checksums": 0},
    ),
    "overlap": Clause("depth=1", PrefetcherTrial(depth=1, ahead=1), _OVERLAPS),
    "deep overlap": Clause(f"depth={DEPTH}", PrefetcherTrial(depth=DEPTH, ahead=DEPTH), _OVERLAPS),
}

PAGEABLE = Clause(  # no exercise checks this clause
    "batches in pageable memory",
    PrefetcherTrial(lambda: [(torch.randn(PULSES), torch.randn(LABELS))] * 8),
    {"warnings": 1},
)
