"""Exercise 10.2: how many shards, for how many workers on how many ranks."""

from collections.abc import Callable
from math import ceil

import numpy as np

from course_utils.exercises.judging import draw
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.stories.shard_pipelines import SHOWN, DataSet
from course_utils.teaching.exercise import Verdict, exercise, right

SMALLEST_MB, LARGEST_MB = 64, 1000
CASES = (
    DataSet(1_000, 0.01, 4, 2),  # too small for shards of 64 MB
    DataSet(8, 700, 8, 1),  # as many samples as readers
    *SHOWN.values(),
    DataSet(1_000_000, 0.101, 10, 10),  # 1,010 MB for each reader, too much for one shard
    DataSet(1_000_000, 0.0127, 10, 10),  # 127 MB for each reader, too little for two shards
    *draw(
        DataSet,
        30,
        seed=10,
        samples=(10_000, 100_000, 1_000_000, 20_000_000),
        sample_mb=(0.0002, 0.01, 0.11, 2, 20),
        workers=(0, 0, 0, *range(1, 17)),
        ranks=(1, 2, 3, 4, 8, 64),
    ),
)


def right_numbers(case: DataSet) -> range:
    """Return the numbers of shards that suit a data set."""
    per_place = case.mb / case.places
    most = max(1, min(int(per_place / SMALLEST_MB), case.samples // case.places))
    least = min(most, ceil(per_place / LARGEST_MB))
    return range(least * case.places, most * case.places + 1, case.places)


SLIPS = (
    Slip(
        lambda _, got, __: (
            not isinstance(got, int | np.integer) or isinstance(got, bool) or got < 1
        ),
        "For {case} you return {got!r}. A number of shards is a whole number of at least 1.",
        "Use // or round, and then max(1, ...).",
    ),
    Slip(
        lambda case, got, _: got % case.places,
        "For {case} you return {got}. The {case.places} readers then have different numbers of "
        "shards, or none, and some wait for others at the end of each epoch.",
        "Return a multiple of max(1, workers) * ranks.",
    ),
    Slip(
        lambda case, got, _: case.mb / got > LARGEST_MB,
        "For {case} you return {got}, so a shard has more than 1,000 MB. After an error, a worker "
        "reads it again from the start. Few large shards also mix badly.",
        "Give each reader more shards.",
    ),
    Slip(
        lambda _, got, wanted: got > wanted[-1],
        "For {case} you return {got}, but {wanted[0]} is enough. A small shard "
        "costs a request like a large one.",
        "Use shards of at least 64 MB and one sample, or one for each reader if that is too many.",
    ),
)


@exercise("10.2", title="How many shards?", seconds=30)
def how_many_shards(choose_shards: Callable[[int, float, int, int], int]) -> Verdict:
    """Check a function that returns the number of shards of a data set."""
    compare(
        lambda case: choose_shards(case.samples, case.sample_mb, case.workers, case.ranks),
        right_numbers,
        CASES,
        *SLIPS,
        same=lambda got, wanted: got in wanted,
        show=str,
    )
    return right(
        f"{len(CASES)} data sets: all workers have the same number of shards, and the shards have "
        "a good size wherever that is possible."
    )
