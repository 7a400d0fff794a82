"""Exercise 10.3: a stream of shards that serves every sample once on all ranks."""

import os
from collections.abc import Callable
from functools import partial
from itertools import chain, product
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
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.exercises.nb10.hidden import CUTS, ERROR, ONCE, HiddenShards, key_of, shard_folder
from course_utils.teaching.exercise import Verdict, exercise, expect_in_a_file, right
from course_utils.teaching.notebook import explain
from keepfed.formatting import plural

Make = Callable[[list[str], int, int, int], Any]
Hidden = dict[int, HiddenShards]

COUNTS = (12, 2, 4)  # shards: a multiple of ranks and workers, fewer than workers, neither
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
CASES = [ServedRun(n, w, r) for n, w, r in product(COUNTS, (0, 2, 3), (1, 2, 3)) if r <= n]
CASES += [ServedRun(n, 0, 2, torchrun=True) for n in COUNTS]

RAISES, ENDS, SAMPLES = "raises", "the stream ends", "it serves only samples of its shards"
RANKS, TWICE, LOST = "the ranks serve the same", "samples served twice", "samples never served"
DIVIDED = {RAISES: "", ENDS: True, SAMPLES: True, RANKS: False, TWICE: 0, LOST: 0}
DIVIDED["shards read in several places"] = 0
MOVES, CUT = "the shards of rank 0 change with the epoch", "a shard that breaks off"
AHEAD = "all samples are read before the first is served"
CALLS = {MOVES: True, CUT: ERROR, AHEAD: False, "the result is a dataset": True}

SLIPS = (
    Slip(
        lambda _, got, __: got.get(RAISES),
        "With {case}, WebDataset raises an error: {got[raises]}. A worker or a rank gets no shard, "
        "or it finds the variable RANK, and nobody said who divides the shards.",
        "Deal the shards out like cards, urls[rank::world_size]. Pass nodesplitter=None and "
        "empty_check=False.",
    ),
    Slip(
        lambda _, got, __: got.get(RANKS),
        "With {case}, every rank serves the same samples.",
        "Give each rank its own shards before WebDataset gets them: urls[rank::world_size].",
    ),
    Slip(
        lambda _, got, __: got.get(TWICE) or got.get(LOST),
        "With {case}, {got[samples never served]} samples are never served, and "
        "{got[samples served twice]} are served twice. Either the ranks do not agree on one order, "
        "or shards are divided twice or never: WebDataset divides those of a rank among its "
        "workers, once.",
        "Shuffle with np.random.default_rng(epoch), then deal out all shards. Keep the default "
        "workersplitter, and let no later stage drop samples.",
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
    expect_in_a_file(make_stream)
    with shard_folder() as folder:
        shards = {count: HiddenShards(folder, count) for count in COUNTS}
        urls = shards[12].urls
        given = urls[::-1]
        with process_unchanged(given), random_numbers_of(1):  # WebDataset draws from Python's
            make_stream(given, 1, 1, 2)
        compare(partial(_divide, make_stream, shards), lambda _: DIVIDED, CASES, *SLIPS, show=str)
        many = HiddenShards(folder, 40, samples=12)  # more samples than a small buffer holds
        calls = partial(_call, make_stream, shards[12], many)
        compare(calls, lambda _: CALLS, ["several calls"], *SLIPS, show=str)
        expect_mixed([many.order(make_stream(list(many.urls), n, 0, 1)) for n in EPOCHS], many.urls)
        expect_no_seed(lambda: list(make_stream(list(urls), 1, 1, 2)))
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
        for rank in range(case.ranks):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(case.ranks), "LOCAL_RANK": "0"}
            with patch.dict(os.environ, variables if case.torchrun else {}):
                stream = make_stream(list(shards.urls), epoch, rank, case.ranks)
                own = serve([stream], case.workers, shards.read)
            by_place |= {(rank, worker): items for (_, worker), items in own.items()}
    except (IndexError, ValueError) as error:  # raised by WebDataset
        return {**DIVIDED, RAISES: explain(error)}
    keys = {place: [str(key_of(item)) for item in items] for place, items in by_place.items()}
    dicts = all(isinstance(item, dict) for item in chain(*by_place.values()))
    served = Served(keys, shards.samples)
    return {
        RAISES: "",
        ENDS: all(len(items) < shards.enough for items in by_place.values()),
        SAMPLES: dicts and {*served.counts} <= {*shards.samples},
        RANKS: served.all_ranks_alike,
        TWICE: served.twice,
        LOST: served.lost,
        "shards read in several places": sum(
            served.readers(some) > 1 for some in shards.keys.values()
        ),
    }


def _call(make_stream: Make, shards: HiddenShards, many: HiddenShards, _: str) -> dict[str, Any]:
    streams = [make_stream(list(shards.urls), epoch, 0, 2) for epoch in EPOCHS]
    with shards.cut(next(iter(CUTS))):
        damaged = shards.outcome(lambda: make_stream(list(shards.urls), 1, 0, 1))
    return {
        MOVES: len({frozenset(shards.order(stream)) for stream in streams}) > 1,
        CUT: damaged,
        AHEAD: many.after_the_first(lambda: make_stream(list(many.urls), 1, 0, 1)) == ONCE,
        "the result is a dataset": all(isinstance(stream, IterableDataset) for stream in streams),
    }
