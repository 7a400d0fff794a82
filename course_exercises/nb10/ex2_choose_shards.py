"""10.2: how many shards, for how many workers on how many ranks."""

from collections.abc import Callable
from typing import Any

import numpy as np

from course_exercises.judging import draw
from course_stories.shard_pipelines import SHOWN, DataSet
from course_utils.teaching.exercise import Verdict, exercise, expect, right, wrong
from keepfed.formatting import plural

SMALLEST_MB, LARGEST_MB = 64, 1000
TOO_SMALL = DataSet(1_000, 0.01, 4, 2)  # for shards of a good size
A_LITTLE_TOO_LARGE = DataSet(1_000_000, 0.101, 10, 10)  # for one shard each: 1,010 MB
A_LITTLE_TOO_SMALL = DataSet(1_000_000, 0.0127, 10, 10)  # for two shards each: 63.5 MB
HIDDEN = draw(
    DataSet,
    60,
    seed=10,
    samples=(10_000, 100_000, 1_000_000, 20_000_000),  # several for each who reads
    sample_mb=(0.0002, 0.01, 0.11, 2, 20),
    workers=(0, 0, 0, *range(1, 17)),
    ranks=(1, 2, 3, 4, 8, 64),
)

Answer = Callable[[int, float, int, int], int]


@exercise("10.2", title="How many shards?")
def how_many_shards(choose_shards: Answer) -> Verdict:
    """Judge a function by what its number of shards means for those who read them."""
    cases = [*SHOWN.values(), TOO_SMALL, A_LITTLE_TOO_LARGE, A_LITTLE_TOO_SMALL, *HIDDEN]
    for case in cases:
        try:
            count = choose_shards(case.samples, case.sample_mb, case.workers, case.ranks)
        except ZeroDivisionError:
            return wrong(
                f"{case}: you divide by zero. A rank without workers reads by itself, and what is "
                "rounded down may come to nothing.",
                "Count the readers first, with max(1, workers) * ranks; take max(1, ...) of "
                "whatever else you divide by.",
            )
        _judge(case, count)
    return right(
        f"{len(cases)} data sets: every worker of every rank has as many shards as the others, "
        "and no shard is too small or too large where that can be."
    )


def _judge(case: DataSet, count: Any) -> None:
    expect(
        isinstance(count, int | np.integer) and not isinstance(count, bool) and count >= 1,
        f"For {case} you return {count!r}, which is no number of shards.",
        "Return a whole number from 1 on; // and round make one.",
    )
    expect(
        count >= case.places,
        f"{case}: {plural(count, 'shard')} for {case.places} readers. Some find none: "
        "WebDataset stops there with an error, and more workers do not help.",
        "At least one for each worker of each rank: max(1, workers) * ranks.",
    )
    expect(
        count % case.places == 0,
        f"{case}: {count:,} shards do not divide evenly among {case.places} readers. Some have one "
        "more, and the others wait for them at the end of each epoch.",
        "Make it a multiple of max(1, workers) * ranks.",
    )
    expect(
        count <= case.samples,
        f"{case}: {count:,} shards are more than there are samples.",
        "Ask for larger shards.",
    )
    mb = case.mb / count
    if case.mb < SMALLEST_MB * case.places:
        expect(
            count == case.places,
            f"{case}: the shards have {mb:.3g} MB. Small ones cost a request each and cannot be "
            "helped here, but there are more than the readers need.",
            "One for each reader, where the data are too small for more.",
        )
        return
    expect(
        mb <= LARGEST_MB,
        f"{case}: a shard has {mb:,.0f} MB. A worker that breaks off reads it again from its "
        "start, and shards are what is shuffled: few large ones mix badly.",
        f"At most {LARGEST_MB:,} MB: give each reader more of them.",
    )
    expect(
        mb >= SMALLEST_MB,
        f"{case}: a shard has {mb:.3g} MB. Each costs a request and a new connection that starts "
        "slowly.",
        f"At least {SMALLEST_MB} MB where the data allow it: divide the size of all by a size "
        "between the two, then round to a multiple of the readers.",
    )
