"""Exercise 01.2: split the events by run into training and validation."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging.compare import Slip, compare, differs
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.teaching.exercise import Verdict, exercise, expect, refuse, right

Split = Callable[[NDArray[np.int32], float, int], Sequence[Any]]
SEEDS = range(200)  # enough to tell a random draw from a pattern
SIGMAS = 5  # of one run; a random draw deviates by more in one of 40,000 checks
SHARED, LOST, TWICE = "runs in both parts", "events in no part", "events that come more than once"
DRAWN = "runs in validation"
SPLIT_RUNS = Slip(
    differs(SHARED),
    "Some runs are in both parts. Events of one run share its noise and its dead sensors, so "
    "validation is not independent of training.",
    "Divide np.unique(run_id), and give each event to the part of its run.",
)


class RunSplit(NamedTuple):
    """The arguments of one call."""

    run_id: NDArray[np.int32]
    share: float
    seed: int

    def __str__(self) -> str:
        runs, events = len(np.unique(self.run_id)), len(self.run_id)
        return f"{events} events of {runs} runs, share {self.share}"


@exercise("01.2", title="Split by run", seconds=60)
def split_by_run(split: Split) -> Verdict:
    """Check a split of runs with different lengths, whose numbers start anywhere."""
    first, *more = (_case(*c) for c in [(4, 0.5), (20, 0.25), (500, 0.1), (9, 0)])
    twin = first._replace(run_id=first.run_id[::-1] + np.int32(7))  # has the same length
    compare(partial(_facts, split), _wanted, [first, twin, *more], SPLIT_RUNS, show=str)
    _expect_seeded(split, _case(40, 0.25))
    return right("No run is in both parts, every event is in one, and the seed decides which.")


def _parts(split: Split, case: RunSplit) -> Sequence[NDArray[np.intp]]:
    with process_unchanged(case.run_id):
        parts = split(*case)
    if isinstance(parts, Sequence) and len(parts) == 2:
        arrays = [np.asarray(part) for part in parts]
        arrays = [array if array.size else array.astype(int) for array in arrays]
        if all(array.ndim == 1 and array.dtype.kind in "iu" for array in arrays):
            everywhere = np.concatenate(arrays)
            if not everywhere.size or 0 <= everywhere.min() <= everywhere.max() < len(case.run_id):
                return arrays
    refuse(
        "Your function must return two one-dimensional arrays with the positions of events. Masks "
        "and the numbers of runs are not positions.",
        "Use np.flatnonzero(mask). np.where returns a tuple, and np.argwhere returns a column.",
    )


def _facts(split: Split, case: RunSplit) -> dict[str, int]:
    parts = _parts(split, case)
    train, valid = (set(case.run_id[part].tolist()) for part in parts)
    counts = Counter(np.concatenate(parts).tolist())
    return {
        SHARED: len(train & valid),
        LOST: len(case.run_id) - len(counts),
        TWICE: counts.total() - len(counts),
        DRAWN: len(valid),
    }


def _wanted(case: RunSplit) -> dict[str, int]:
    return {SHARED: 0, LOST: 0, TWICE: 0, DRAWN: round(case.share * len(np.unique(case.run_id)))}


def _expect_seeded(split: Split, case: RunSplit) -> None:
    """Expect the seed to decide which runs are drawn, and all runs to be equally likely."""
    runs = np.unique(case.run_id)
    again, *rows = (
        np.isin(runs, case.run_id[_parts(split, case._replace(seed=seed))[1]])
        for seed in (SEEDS[0], *SEEDS)
    )
    expect(
        (again == rows[0]).all(),
        "The same seed returns a different split in each call. Tomorrow you would train on the "
        "events that you validated with today.",
        "Draw from np.random.default_rng(seed).",
    )
    times, usual = np.sum(rows, axis=0), len(SEEDS) * case.share
    expect(
        len(np.unique(rows, axis=0)) == len(SEEDS)
        and (abs(times - usual) < SIGMAS * np.sqrt(usual * (1 - case.share))).all(),
        f"The runs are not drawn at random. With {len(SEEDS)} seeds, some splits repeat, or some "
        "runs are in validation too often.",
        "Shuffle np.unique(run_id) with np.random.default_rng(seed).permutation, then cut.",
    )


def _case(runs: int, share: float, seed: int = 0) -> RunSplit:
    rng = np.random.default_rng(runs)
    numbers = 2**31 - 117 * runs + rng.choice(9 * runs, runs, replace=False)
    sizes = rng.permutation(np.geomspace(1, 100, runs).astype(int))
    return RunSplit(rng.permutation(np.repeat(numbers, sizes)).astype(np.int32), share, seed)
