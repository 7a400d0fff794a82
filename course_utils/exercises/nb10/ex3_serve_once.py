"""Exercise 10.3: a stream of shards that serves every sample once on all ranks."""

import os
from collections.abc import Callable
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from torch.utils.data import IterableDataset

from course_utils.exercises.judging import (
    Served,
    expect_the_same_in_real_workers,
    serve,
)
from course_utils.exercises.judging.chance import expect_mixed, expect_no_seed, random_numbers_of
from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import expect_given_rank, process_unchanged
from course_utils.exercises.nb10.hidden import CUTS, ERROR, ONCE, HiddenShards, key_of, shard_folder
from course_utils.teaching.exercise import Verdict, exercise, expect_in_a_file, right
from course_utils.teaching.notebook import explain
from keepfed.formatting import plural

Make = Callable[[list[str], int, int, int], Any]
Hidden = dict[int, HiddenShards]

COUNTS = (12, 2, 4, 7)  # shards: a multiple of ranks and workers, fewer than workers, neither
# the first is again in cycles of 2, 8, 10, 64, 100 or 256 epochs
EPOCHS = (1, 2, 3, 9, 11, 65, 101, 257, 65_537)


class ServedRun(NamedTuple):
    """Ranks and workers that divide some shards."""

    shards: int
    workers: int
    ranks: int
    torchrun: bool = False

    def __str__(self) -> str:
        return (
            f"{self.shards} shards, {plural(self.workers, 'worker')} on each of "
            f"{plural(self.ranks, 'rank')}{' under torchrun' * self.torchrun}"
        )


# WebDataset cannot create a stream without shards
CASES = [ServedRun(n, w, r) for n, w, r in product(COUNTS, range(4), (1, 2, 3)) if r <= n]
CASES += [ServedRun(n, 0, 2, torchrun=True) for n in COUNTS]

RESULT, RAISES, ENDS = "make_stream returns a dataset", "raises", "the stream ends"
SAMPLES = "it serves only samples of its shards"
RANKS, WORKERS = "the ranks serve the same samples", "the workers serve the same samples"
TWICE, LOST = "samples served twice", "samples never served"
DIVIDED = {
    RESULT: True,
    RAISES: "",
    ENDS: True,
    SAMPLES: True,
    RANKS: False,
    WORKERS: False,
    TWICE: 0,
    LOST: 0,
    "shards read in several places": 0,
}
MOVES = "shards of rank 0 change with the epoch"
CALLS = {
    MOVES: True,
    "a shard that breaks off": ERROR,
    "all samples are read before the first is served": False,
}

SLIPS = (
    Slip(
        lambda _, got, __: "No samples" in got.get(RAISES, "") or "Index" in got.get(RAISES, ""),
        "With {case}, a worker or a rank gets no shard, and WebDataset raises an error.",
        "Deal the shards out like cards, urls[rank::world_size], and pass empty_check=False.",
    ),
    Slip(
        lambda _, got, __: "nodesplitter" in got.get(RAISES, ""),
        "With {case}, WebDataset finds the variable RANK and raises an error, because nobody said "
        "who divides the shards among the ranks.",
        "Choose the shards of the rank yourself, and pass nodesplitter=None.",
    ),
    Slip(
        lambda _, got, __: not got.get(ENDS, True),
        "With {case}, the stream does not end. resampled and repeat continue forever.",
        "Shuffle the list of shards instead.",
    ),
    Slip(
        lambda _, got, __: got.get(RANKS),
        "With {case}, every rank serves the same samples.",
        "Give each rank its own shards before WebDataset gets them: urls[rank::world_size].",
    ),
    Slip(
        lambda _, got, __: got.get(WORKERS) or (got.get(LOST) and not got[TWICE]),
        "With {case}, {got[samples never served]} samples are never served, and "
        "{got[samples served twice]} are served twice. WebDataset divides the shards of a rank "
        "among its workers, once.",
        "Deal out all shards with urls[rank::world_size]. Pass nodesplitter=None, keep the default "
        "workersplitter, and let no later stage drop samples.",
    ),
    Slip(
        lambda _, got, __: got.get(TWICE) and got[LOST],
        "With {case}, {got[samples served twice]} samples are served twice and {got[samples never "
        "served]} never. The ranks do not agree on one order of the shards.",
        "Shuffle with np.random.default_rng(epoch), which is the same on all ranks, then divide.",
    ),
    Slip(
        lambda _, got, __: not got.get(MOVES, True),
        "Rank 0 of 2 reads the same shards in every epoch. Samples of different ranks never meet.",
        "Shuffle the list of all shards with the epoch as the seed, then divide.",
    ),
)


@exercise("10.3", title="Every sample once", seconds=60)
def every_sample_once(make_stream: Make) -> Verdict:
    """Check a stream for 0 to 3 workers on 1 to 3 ranks, then in real workers."""
    with shard_folder() as folder:
        shards = {count: HiddenShards(folder, count) for count in COUNTS}
        urls = shards[12].urls
        given = urls[::-1]
        with process_unchanged(given), random_numbers_of(1):  # WebDataset draws from Python's
            make_stream(given, 1, 1, 2)
        compare(partial(_divide, make_stream, shards), lambda _: DIVIDED, CASES, *SLIPS, show=str)
        compare(
            lambda _: _call(make_stream, folder),
            lambda _: CALLS,
            ["several calls"],
            *SLIPS,
            show=str,
        )
        _check_order(make_stream, folder)
        expect_no_seed(lambda: list(make_stream(list(urls), 1, 1, 2)))
        expect_given_rank(
            lambda: sorted(serve([make_stream(list(urls), 1, 0, 2)], 0, shards[12].order)[0, 0])
        )
        expect_in_a_file(make_stream)
        expect_the_same_in_real_workers(
            make_stream(list(urls), 1, 1, 2),
            lambda epoch: [sample["__key__"] for sample in epoch],
            "samples",
            "your code depends on something that differs there",
            "Decide everything from the four arguments. WebDataset asks for the worker itself.",
        )
    return right(
        "Every sample once, for 0 to 3 workers on 1 to 3 ranks, even with fewer shards than "
        "workers. Each epoch has another order, and real workers agree."
    )


def _divide(make_stream: Make, hidden: Hidden, case: ServedRun) -> dict[str, Any]:
    shards = hidden[case.shards]
    by_place: dict[tuple[int, int], list[Any]] = {}
    epoch = case.workers  # some mistakes show only in epoch 0, and others only later
    try:
        streams = []
        for rank in range(case.ranks):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(case.ranks), "LOCAL_RANK": "0"}
            with patch.dict(os.environ, variables if case.torchrun else {}):
                streams.append(make_stream(list(shards.urls), epoch, rank, case.ranks))
                if case.torchrun:
                    by_place[rank, 0] = shards.read(streams[-1])
        by_place = by_place or serve(streams, case.workers, shards.read)
    except (IndexError, ValueError) as error:  # raised by WebDataset
        return {**DIVIDED, RAISES: explain(error)}
    keys = {place: [str(key_of(item)) for item in items] for place, items in by_place.items()}
    if not all(isinstance(item, dict) for item in chain(*by_place.values())) or not (
        {*chain(*keys.values())} <= {*shards.samples}
    ):
        return {**DIVIDED, SAMPLES: False}
    served = Served(keys, shards.samples)
    return {
        **DIVIDED,
        RESULT: all(isinstance(stream, IterableDataset) for stream in streams),
        ENDS: all(len(items) < shards.enough for items in by_place.values()),
        RANKS: served.all_ranks_alike,
        WORKERS: served.all_workers_alike,
        TWICE: served.twice,
        LOST: served.lost,
        "shards read in several places": sum(
            served.readers(some) > 1 for some in shards.keys.values()
        ),
    }


def _call(make_stream: Make, folder: Path) -> dict[str, Any]:
    shards, large = HiddenShards(folder, 12), HiddenShards(folder, 15, samples=80)
    parts = {
        frozenset(shards.order(make_stream(list(shards.urls), epoch, 0, 2))) for epoch in EPOCHS
    }
    with shards.cut(next(iter(CUTS))):
        damaged = shards.outcome(lambda: make_stream(list(shards.urls), 1, 0, 1))
    lazily = large.after_the_first(lambda: make_stream(list(large.urls), 1, 0, 1))
    return {
        MOVES: len(parts) > 1,
        "a shard that breaks off": damaged,
        "all samples are read before the first is served": lazily == ONCE,
    }


def _check_order(make_stream: Make, folder: Path) -> None:
    """Check the order of the shards, with more samples than a small buffer can mix."""
    shards = HiddenShards(folder, 40, samples=12)
    for ranks in (1, 2):
        orders = []
        for epoch in EPOCHS:
            streams = [make_stream(list(shards.urls), epoch, rank, ranks) for rank in range(ranks)]
            orders.append([*chain(*map(shards.order, streams))])
        expect_mixed(orders, shards.urls)
