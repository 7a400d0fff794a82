"""Exercise 01.2: split the events by run into training and validation."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import (
    expect_given_rank,
    expect_same_in_a_new_python,
    process_unchanged,
)
from course_utils.teaching.exercise import Verdict, exercise, expect, right

SEEDS = range(200)  # enough to tell a random draw from a pattern
SIGMAS = 6  # a random draw deviates by more only once in a billion

Split = Callable[[NDArray[np.int32], float, int], Sequence[Any]]


class RunSplit(NamedTuple):
    """The arguments of one call."""

    run_id: NDArray[np.int32]
    share: float
    seed: int

    @property
    def wanted(self) -> int:
        """Number of runs in validation."""
        return round(self.share * len(np.unique(self.run_id)))


class TwoParts(NamedTuple):
    """Positions of the events in each part, and the run of each event."""

    train: NDArray[np.intp]
    valid: NDArray[np.intp]
    run_id: NDArray[np.int32]

    @property
    def shared(self) -> int:
        """Number of runs in both parts."""
        return len(np.intersect1d(self.run_id[self.train], self.run_id[self.valid]))

    @property
    def drawn(self) -> NDArray[np.bool_]:
        """Whether each run is in validation."""
        return np.isin(np.unique(self.run_id), self.run_id[self.valid])


SLIPS = (
    Slip(
        lambda case, got, _: (
            not isinstance(got, TwoParts)
            or not {*got.train, *got.valid} <= {*range(len(case.run_id))}
        ),
        "Your function must return two one-dimensional arrays with the positions of events. Masks "
        "and the numbers of runs are not positions.",
        "Use np.flatnonzero(mask). np.where returns a tuple, and np.argwhere returns a column.",
    ),
    Slip(
        lambda _, got, __: got.shared and np.ptp(got.valid) + 1 == len(got.valid),
        "You cut the file into two pieces. Its events are sorted by energy, so validation gets "
        "only the highest or lowest energies, and runs of training as well.",
        "Divide np.unique(run_id), and give each event to the part of its run.",
    ),
    Slip(
        lambda _, got, __: got.shared,
        "Some runs are in both parts. Events of one run share its noise and its dead sensors, so "
        "validation is not independent of training.",
        "Divide np.unique(run_id), and give each event to the part of its run.",
    ),
    Slip(
        lambda case, got, _: sorted([*got.train, *got.valid]) != [*range(len(case.run_id))],
        "Some events are in no part, or more than once in a part. Run numbers need not start at 0, "
        "and runs need not have equally many events.",
        "Take the runs from np.unique(run_id), and return each position once.",
    ),
    Slip(
        lambda case, got, _: got.drawn.sum() != case.wanted,
        "Validation must have round(share * len(runs)) runs. The number differs if the parts are "
        "swapped, if you count events, or if you draw a run twice, separately, or as 0, 1, 2.",
        "Draw this number from np.unique(run_id), without replacement, and return train first.",
    ),
)


@exercise("01.2", title="Split by run", seconds=60)
def split_by_run(split: Split) -> Verdict:
    """Check a split of runs with different lengths, whose numbers start anywhere."""
    first, *more = (_case(runs, share) for runs, share in [(12, 0.5), (20, 0.25), (40, 0.25)])
    twin = first._replace(run_id=first.run_id[::-1] + np.int32(7))  # has the same length
    answer, cases = partial(_parts, split), [first, twin, *more]
    compare(answer, lambda _: None, cases, *SLIPS, same=lambda *_: True)
    _expect_seeded(answer, cases[-1])
    expect_given_rank(lambda: str(answer(first).drawn.astype(int)), split)
    expect_same_in_a_new_python(split, *first)
    return right("No run is in both parts, every event is in one, and the seed decides which.")


def _parts(split: Split, case: RunSplit) -> Any:
    """Return the two parts, or what the function returned if it has another form."""
    with process_unchanged(case.run_id):
        found = split(*case)
    if not isinstance(found, Sequence) or len(found) != 2:
        return found
    arrays = [np.asarray(part) for part in found]
    arrays = [array if array.size else array.astype(int) for array in arrays]
    is_positions = all(array.ndim == 1 and array.dtype.kind in "iu" for array in arrays)
    return TwoParts(arrays[0], arrays[1], case.run_id) if is_positions else found


def _expect_seeded(answer: Callable[[RunSplit], Any], case: RunSplit) -> None:
    """Expect the seed to decide which runs are drawn, and all runs to be equally likely."""
    parts = [answer(case._replace(seed=seed)) for seed in (SEEDS[0], *SEEDS)]
    again, *rows = (one.drawn for one in parts)
    expect(
        (again == rows[0]).all(),
        "The same seed returns a different split in each call. Tomorrow you would train on the "
        "events that you validated with today.",
        "Draw from np.random.default_rng(seed).",
    )
    drawn, runs, k = np.array(rows), len(again), case.wanted
    # how often each run is in validation, and how often runs at a distance of 1, 2, ... are
    times = drawn.sum(axis=0), len(SEEDS) * k / runs
    pairs = np.array([(drawn & np.roll(drawn, by, axis=1)).sum() for by in range(1, runs // 2)])
    together = pairs, len(SEEDS) * k * (k - 1) / (runs - 1)
    expect(
        len(np.unique(drawn, axis=0)) == len(SEEDS)
        and all((abs(n - usual) < SIGMAS * np.sqrt(usual)).all() for n, usual in (times, together)),
        f"The runs are not drawn at random. With {len(SEEDS)} seeds, some splits repeat, some runs "
        "are in validation too often, or the same runs are always together.",
        "Shuffle np.unique(run_id) with np.random.default_rng(seed).permutation, then cut.",
    )


def _case(runs: int, share: float, seed: int = 0) -> RunSplit:
    rng = np.random.default_rng(runs)
    numbers = 117_000 + rng.choice(9 * runs, runs, replace=False)
    sizes = rng.permutation(np.geomspace(3, 300, runs).astype(int))
    return RunSplit(rng.permutation(np.repeat(numbers, sizes)).astype(np.int32), share, seed)
