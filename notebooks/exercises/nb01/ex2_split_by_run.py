"""Exercise 01.2: who sits in training and who in validation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.teaching.exercise import Verdict, exercise, expect, right
from course_utils.words import percent

Split = Callable[[NDArray[np.int32], float, int], Sequence[Any]]


@exercise("01.2", title="Split by run")
def split_by_run(split: Split) -> Verdict:
    """Judge a split on runs of unequal length, whose numbers begin anywhere."""
    for seed, (runs, share) in enumerate([(5, 0.2), (40, 0.25), (12, 0.5)]):
        run_id = _run_ids(runs, seed)
        train, valid = _positions(split(run_id.copy(), share, seed), run_id)
        _judge_leak(train, valid, run_id)
        _judge_complete(train, valid, run_id)
        _judge_share(valid, run_id, share)
    _judge_seed(split, _run_ids(40, 9))
    return right("No run is in both parts, every event in one, and the seed decides which.")


def _run_ids(runs: int, seed: int) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    numbers = 117_000 + rng.choice(9 * runs, runs, replace=False)
    sizes = rng.integers(60, 100, runs)
    return rng.permutation(np.repeat(numbers, sizes)).astype(np.int32)


def _positions(parts: Any, run_id: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    expect(
        isinstance(parts, Sequence) and len(parts) == 2,
        f"The function returned {type(parts).__name__}; wanted are two arrays.",
        "End with: return train, valid.",
    )
    train, valid = (np.asarray(part) for part in parts)
    expect(
        bool not in (train.dtype, valid.dtype),
        "You return true or false for each event. A Subset wants the positions of its events.",
        "np.flatnonzero(mask) turns one into the other.",
    )
    expect(
        not (set(train.tolist()) | set(valid.tolist())) & set(run_id.tolist()),
        "You return the numbers of runs. A Subset wants the positions of events.",
        "np.flatnonzero(np.isin(run_id, valid_runs)) are the positions of their events.",
    )
    expect(
        len(train) and len(valid),
        "One part is empty: nothing to train on, or nothing to validate with.",
        "Round the number of runs: round(share * len(runs)).",
    )
    return train, valid


def _judge_leak(train: NDArray[Any], valid: NDArray[Any], run_id: NDArray[Any]) -> None:
    both, runs = np.intersect1d(run_id[train], run_id[valid]), np.unique(run_id[valid])
    how = "Divide the runs, np.unique(run_id), and give each event to the part of its run."
    expect(
        not len(both) or np.ptp(valid) + 1 > len(valid),
        "You cut the file in two. Its events are sorted by energy, not by run: validation would "
        f"get the highest or lowest energies, and {len(both)} of its {len(runs)} runs are in "
        "training too.",
        how,
    )
    expect(
        not len(both),
        f"{len(both)} of {len(runs)} runs in validation are in training too. Different events of "
        "one run share its noise and its dead strings: they are not independent.",
        how,
    )


def _judge_complete(train: NDArray[Any], valid: NDArray[Any], run_id: NDArray[Any]) -> None:
    served = np.bincount(np.concatenate([train, valid]), minlength=len(run_id))
    expect(
        (served > 0).all(),
        f"{(served == 0).sum():,} of {len(run_id):,} events are in neither part. Runs need not be "
        "numbered from 0, nor have equally many events.",
        "Take the numbers of the runs from np.unique(run_id).",
    )
    expect(
        (served == 1).all(),
        "Some events come twice in a part: they would count double.",
        "Return each position once.",
    )


def _judge_share(valid: NDArray[Any], run_id: NDArray[Any], share: float) -> None:
    runs, sizes = np.unique(run_id, return_counts=True)
    found = len(np.unique(run_id[valid])) / len(runs)
    off = min(abs(found - share), abs(len(valid) / len(run_id) - share))
    expect(
        off <= sizes.max() / len(run_id) + 1e-9,
        f"Validation has {percent(found)} of the runs, asked for were {percent(share)}. Are the "
        "two parts in the right order?",
        "The first array is for training, the second, with `share` of the runs, for validation.",
    )


def _judge_seed(split: Split, run_id: NDArray[np.int32]) -> None:
    chosen = [frozenset(np.asarray(split(run_id, 0.25, seed)[1]).tolist()) for seed in (1, 1, 2, 3)]
    expect(
        chosen[0] == chosen[1],
        "The same seed gives another split each time. Tomorrow you would train on what you "
        "validated with today.",
        "Draw from np.random.default_rng(seed), not from np.random or random.",
    )
    expect(
        len(set(chosen)) > 1,
        "Every seed gives the same split: the runs are not drawn at random. Neighbouring runs "
        "are alike too.",
        "Shuffle the runs with np.random.default_rng(seed).permutation(...).",
    )
