"""Exercise 14.1: read each cluster once, and mix the events in a limited memory."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from course_utils.exercises.judging.compare import Slip
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.exercises.nb14.epochs import (
    Indices,
    call,
    expect_random,
    judge_epochs,
    ledger,
    read_batches,
)
from course_utils.teaching.exercise import Verdict, exercise, expect, right

Mix = Callable[[list[int], Callable[[int], Indices], int, int, np.random.Generator], Iterable[Any]]

AGAIN = "clusters read again"
BEYOND, UNUSED, APART = "events beyond the memory", "places of the memory unused", "scatter"
EPOCHS, MOST_SCATTER = 20, 1.9  # on average; a memory that is emptied and filled again gives 2.1


class ClusterCase(NamedTuple):
    """Sizes of the clusters, the size of a batch, and the events that fit into memory."""

    sizes: tuple[int, ...]
    batch_size: int
    memory: int

    def __str__(self) -> str:
        count, sizes = len(self.sizes), sorted({min(self.sizes), max(self.sizes)})
        words = " to ".join(map(str, sizes))
        return f"clusters of {words} events ({count} in all) and batches of {self.batch_size}"


ALONE = ClusterCase((500,), 64, 600)
SORTED = ClusterCase((100,) * 200, 64, 1_600)  # the first quarter is signal
CASES = (
    ClusterCase((4, 4, 4), 2, 6),
    ClusterCase((5,), 2, 7),
    ClusterCase((6, 1, 9, 2, 8, 3), 4, 13),  # just enough memory for a cluster and a batch
    ClusterCase((10,) * 12, 7, 1_000),  # everything fits
    ClusterCase((30, 20) * 8, 16, 100),
    SORTED,
)
SLIPS = (
    Slip(
        lambda _, got, __: got[BEYOND],
        "With {case}, {got[events beyond the memory]} events more than allowed are in memory.",
        "Yield batches before you read a cluster: while the held events and sizes[cluster] exceed "
        "`memory`.",
    ),
    Slip(
        lambda _, got, __: got[APART],
        "The signal share of a batch scatters {got[scatter]:.1f} times as much as in a full "
        "shuffle, because neighbors in a file stay together.",
        "Read the clusters in a random order, and permute all events in memory after each read. "
        "Yield only until the next cluster fits, so that the memory stays full.",
    ),
)


@exercise("14.1", title="Mix whole clusters", seconds=30)
def mix_clusters(mixed_batches: Mix) -> Verdict:
    """Count reads, memory and events of several epochs, and measure how well they are mixed."""
    judge_epochs(partial(_epoch, mixed_batches), CASES, (AGAIN, BEYOND, UNUSED, APART), *SLIPS)
    expect_random(partial(_order, mixed_batches, ALONE))
    expect_random(partial(_order, mixed_batches, SORTED), lambda event: event // SORTED.sizes[0])
    return right(
        "Each cluster is read once, and 8 % of the events in memory are enough to mix signal and "
        "background well."
    )


def _epoch(mixed_batches: Mix, case: ClusterCase) -> dict[str, Any]:
    batches, reads, held = _run(mixed_batches, case, 0)
    scatter = 0.0
    if case is SORTED:  # one epoch scatters by a quarter
        epochs = [_run(mixed_batches, case, seed)[0] for seed in range(EPOCHS)]
        scatter = float(np.mean([_scatter(case, epoch) for epoch in epochs]))
    return {
        **ledger(batches, np.arange(sum(case.sizes)), case.batch_size),
        AGAIN: len(reads) - len({*reads}),
        BEYOND: max(0, held - case.memory),
        UNUSED: case.memory - held if case is SORTED and held < 0.8 * case.memory else 0,
        APART: scatter if scatter > MOST_SCATTER else 0,
    }


def _scatter(case: ClusterCase, batches: list[Indices]) -> float:
    """Return the scatter of the signal shares, in that of a full shuffle."""
    events = sum(case.sizes)
    shares = [(batch < events // 4).mean() for batch in batches if len(batch) == case.batch_size]
    late = shares[-len(shares) // 10 :]  # the rest must be mixed as well
    chance = (0.25 * 0.75 / case.batch_size) ** 0.5
    return float(max(np.std(shares), np.std(late) / 2) / chance)


def _order(mixed_batches: Mix, case: ClusterCase, seed: int) -> list[int]:
    return [*chain.from_iterable(batch.tolist() for batch in _run(mixed_batches, case, seed)[0])]


def _run(mixed_batches: Mix, case: ClusterCase, seed: int) -> tuple[list[Indices], list[int], int]:
    """Return the batches of an epoch, the clusters it read, and the most events held."""
    edges, sizes = np.cumsum([0, *case.sizes]), [*case.sizes]
    reads, batches, kept, held, most = list[int](), list[Any](), list[Any](), 0, 0

    def read(cluster: int) -> Indices:
        nonlocal held, most
        reads.append(int(cluster))
        most = max(most, held := held + case.sizes[cluster])
        return np.arange(edges[cluster], edges[cluster + 1])

    with process_unchanged(sizes):
        rng = np.random.default_rng(seed)
        for batch in call(mixed_batches, sizes, read, case.batch_size, case.memory, rng):
            batches.append(batch)
            kept.append(np.array(batch))
            held -= np.size(batch)
            expect(
                len(batches) <= edges[-1],
                f"With {case}, there are more batches than events.",
                "Remove from `held` what you have yielded, and end after the last event.",
            )
    expect(
        all(map(np.array_equal, batches, kept)),
        f"With {case}, a batch changes after you have yielded it.",
        "Yield a new array, not a part of a buffer that you write again.",
    )
    return read_batches(batches, np.arange(edges[-1])), reads, most
