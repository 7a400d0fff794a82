"""Exercise 01.2: who sits in training and who in validation."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.teaching.exercise import Verdict, exercise, expect, right
from keepfed.formatting import percent, plural

SEEDS = range(60)  # enough to tell a draw from a pattern
LONG = 1_500  # events of one run: whoever draws events, or by their number, hardly misses it

DRAW = "Draw a fixed number, round(share * len(runs)), of the runs = np.unique(run_id)."

Split = Callable[[NDArray[np.int32], float, int], Sequence[Any]]


@exercise("01.2", title="Split by run")
def split_by_run(split: Split) -> Verdict:
    """Judge a split on runs of unequal length, whose numbers begin anywhere."""
    for seed, (runs, share) in enumerate([(12, 0.5), (20, 0.25), (40, 0.25)]):
        run_id = _run_ids(runs, seed)
        given = run_id.copy()
        train, valid = _positions(split(given, share, seed), run_id)
        expect(
            np.array_equal(given, run_id),
            "The function changes run_id itself: afterwards no event knows its run any more.",
            "Work on a copy: np.sort(x) makes a new array, x.sort() and a shuffle change the old.",
        )
        _judge_parts(train, valid, run_id)
        parts = [_positions(split(run_id, share, one), run_id) for one in (SEEDS[0], *SEEDS)]
        drawn = np.array([np.isin(np.unique(run_id), run_id[valid]) for _, valid in parts])
        _judge_share(drawn.sum(axis=1), runs, share)
    expect(
        (drawn[0] == drawn[1]).all(),
        "The same seed gives another split each time. Tomorrow you would train on what you "
        "validated with today.",
        "Draw from np.random.default_rng(seed), not from np.random or random.",
    )
    _judge_seed(drawn[1:])
    return right("No run is in both parts, every event in one, and the seed decides which.")


def _run_ids(runs: int, seed: int) -> NDArray[np.int32]:
    rng = np.random.default_rng(seed)
    numbers = 117_000 + rng.choice(9 * runs, runs, replace=False)
    sizes = rng.integers(20, 34, runs)
    sizes[30:31] = LONG  # where there are so many
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
    whole = all(np.issubdtype(part.dtype, np.integer) for part in (train, valid) if len(part))
    expect(
        whole and train.ndim == valid.ndim == 1,
        "Positions are whole numbers, one after the other; yours are "
        f"{train.dtype} in the shape {train.shape}, and {valid.dtype} in the shape {valid.shape}.",
        "np.flatnonzero(mask) makes them of an array of true and false; np.where returns a tuple, "
        "and np.argwhere a column.",
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
    served = np.bincount(np.concatenate([train, valid]), minlength=len(run_id))
    expect(
        (served > 0).all(),
        f"{(served == 0).sum():,} of {len(run_id):,} events are in neither part. Runs need not be "
        "numbered from 0, nor have equally many events.",
        "Take the numbers of the runs from np.unique(run_id).",
    )
    in_order = np.sort(run_id)
    expect(
        not len(both) or len(np.intersect1d(in_order[train], in_order[valid])),
        "Your positions are those in a sorted copy of run_id; in the file other events are there.",
        "Look for the runs in run_id as it is given.",
    )
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
        "one run share its noise and its dead sensors: they are not independent.",
        how,
    )
    expect(
        (served == 1).all(),
        "Some events come twice in a part: they would count double.",
        "Return each position once.",
    )


def _judge_share(drawn: NDArray[Any], runs: int, share: float) -> None:
    """Judge how many runs are drawn for validation by each seed."""
    wanted, least, most = round(share * runs), int(drawn.min()), int(drawn.max())
    asked = f"Asked for were {wanted} of {runs} runs in validation, {percent(share)}"
    swapped = " Are the two parts in the right order?" * (least == runs - wanted)
    expect(
        least != most or least == wanted,
        f"{asked}; there are always {least}.{swapped}",
        "The first array is for training, the second has round(share * len(runs)) of the runs.",
    )
    expect(
        least == most or most > wanted,
        f"{asked}; there are {least} to {most}. A draw with replacement, or one from the "
        "runs of all events, takes some runs twice; and who counts events takes fewer long runs.",
        "Draw from np.unique(run_id), with replace=False; or permute these, and take the first.",
    )
    expect(
        least == most,
        f"{asked}; there are {least} to {most}, as the seed will have it. That happens if each run "
        "is drawn by itself, as by a coin or a hash (the share is met on average only), if "
        "numbers are drawn that are no runs, or if you count events instead of runs.",
        DRAW,
    )


def _judge_seed(drawn: NDArray[Any]) -> None:
    """Judge which runs are drawn by each seed."""
    splits, runs = len(np.unique(drawn, axis=0)), drawn.shape[1]
    # how often two runs at each distance, in a circle, are in validation together
    together = [(drawn & np.roll(drawn, by, axis=1)).sum() for by in range(1, runs // 2)]
    expect(
        splits <= len(SEEDS) / 2 or max(together) < 2 * np.mean(together),
        "The runs in validation are always neighbours, or always equally far apart. The seed "
        "chooses only where they begin, and what drifts from run to run stays hidden.",
        "Shuffle the runs with np.random.default_rng(seed).permutation(...), then cut.",
    )
    expect(
        splits == len(SEEDS),
        f"{len(SEEDS)} seeds give {plural(splits, 'split')}: the runs are not drawn at random.",
        "Shuffle the runs with np.random.default_rng(seed).permutation(...).",
    )
    expect(
        (drawn.any(axis=0) & ~drawn.all(axis=0)).all(),
        f"A run is in validation in none, or in all, of {len(SEEDS)} splits: the first or the last "
        "one, or one with many events, if those are shuffled and not the runs.",
        "Shuffle np.unique(run_id), where each run stands once, and leave none out.",
    )
