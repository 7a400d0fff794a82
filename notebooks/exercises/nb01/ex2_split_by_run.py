"""Exercise 01.2: who sits in training and who in validation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.teaching.exercise import Verdict, exercise, expect, right
from course_utils.words import percent

SEEDS = range(1, 61)  # enough to tell a draw from a pattern

DRAW = "Draw a fixed number, round(share * len(runs)), of the runs = np.unique(run_id)."

Split = Callable[[NDArray[np.int32], float, int], Sequence[Any]]


@exercise("01.2", title="Split by run")
def split_by_run(split: Split) -> Verdict:
    """Judge a split on runs of unequal length, whose numbers begin anywhere."""
    for seed, (runs, share) in enumerate([(5, 0.2), (40, 0.25), (12, 0.5)]):
        run_id = _run_ids(runs, seed)
        given = run_id.copy()
        train, valid = _positions(split(given, share, seed), run_id)
        expect(
            np.array_equal(given, run_id),
            "The function changes run_id itself: afterwards no event knows its run any more.",
            "Work on a copy: np.sort(x) makes a new array, x.sort() and a shuffle change the old.",
        )
        _judge_parts(train, valid, run_id)
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
        all(np.issubdtype(part.dtype, np.integer) for part in (train, valid) if len(part)),
        f"Positions are whole numbers; yours are {train.dtype} and {valid.dtype}.",
        "np.flatnonzero(mask) makes positions of an array of true and false.",
    )
    expect(
        not (set(train.tolist()) | set(valid.tolist())) & set(run_id.tolist()),
        "You return the numbers of runs. A Subset wants the positions of events.",
        "np.flatnonzero(np.isin(run_id, valid_runs)) are the positions of their events.",
    )
    expect(
        len(train) and len(valid),
        "One part is empty: nothing to train on, or nothing to validate with. That happens if each "
        "run is drawn by itself, or if numbers are drawn that are no runs.",
        DRAW,
    )
    return train, valid


def _judge_parts(train: NDArray[Any], valid: NDArray[Any], run_id: NDArray[Any]) -> None:
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
    most = sizes.max() / len(run_id) + 1e-9
    has = f"Validation has {percent(found)} of the runs, asked for were {percent(share)}."
    expect(
        abs(found - share) <= most or abs(1 - found - share) > most,
        f"{has} Are the two parts in the right order?",
        "The first array is for training, the second, with `share` of the runs, for validation.",
    )
    expect(
        min(abs(found - share), abs(len(valid) / len(run_id) - share)) <= most,
        f"{has} That happens if each run is drawn by itself, as by a coin or a hash (the share is "
        "met on average only), or if numbers are drawn that are no runs.",
        DRAW,
    )


def _judge_seed(split: Split, run_id: NDArray[np.int32]) -> None:
    runs = np.unique(run_id)
    drawn = np.array(
        [np.isin(runs, run_id[np.asarray(split(run_id, 0.25, seed)[1])]) for seed in (1, *SEEDS)]
    )
    expect(
        (drawn[0] == drawn[1]).all(),
        "The same seed gives another split each time. Tomorrow you would train on what you "
        "validated with today.",
        "Draw from np.random.default_rng(seed), not from np.random or random.",
    )
    splits = len(np.unique(drawn, axis=0))
    few = "Every seed gives the same split" if splits == 1 else f"All seeds give {splits} splits"
    expect(
        splits > len(SEEDS) / 2,
        f"{few}: the runs are not drawn at random. Neighbouring runs are alike too.",
        "Shuffle the runs with np.random.default_rng(seed).permutation(...).",
    )
    expect(
        abs(drawn.sum(axis=1).mean() - 0.25 * len(runs)) < 0.7,
        f"Asked for 25 % of {len(runs)} runs, you draw {drawn.sum(axis=1).mean():.1f} on average. "
        "A draw with replacement takes some runs twice.",
        "rng.choice needs replace=False; the first runs of a permutation are all different.",
    )
    expect(
        (drawn.any(axis=0) & ~drawn.all(axis=0)).all(),
        f"A run is in validation in none, or in all, of {len(SEEDS)} splits.",
        "Shuffle all runs, also the first and the last.",
    )
    # how often two runs at each distance, in a circle, are in validation together
    together = [(drawn & np.roll(drawn, by, axis=1)).sum() for by in range(1, len(runs) // 2)]
    often, chance = max(together), np.mean(together)
    expect(
        often < 2 * chance,
        "The runs in validation are always neighbours, or always equally far apart. The seed "
        "chooses only where they begin, and what drifts from run to run stays hidden.",
        "Shuffle the runs with np.random.default_rng(seed).permutation(...), then cut.",
    )
