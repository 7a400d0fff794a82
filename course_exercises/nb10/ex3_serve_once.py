"""10.3: a stream of shards that serves every sample once, wherever it runs."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from itertools import chain, combinations, islice, product
from operator import eq
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import webdataset as wds
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from course_exercises.judging import (
    Elsewhere,
    Served,
    expect_the_same_in_real_workers,
    in_another_process,
    random_numbers_of,
    random_state,
    serve,
)
from course_exercises.judging.served import Place
from course_exercises.nb10.hidden import room, small_shards
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_in_a_file,
    refuse,
    right,
)
from course_utils.teaching.notebook import explain
from keepfed.formatting import plural

WORKERS, RANKS = range(4), (1, 2, 3)
COUNTS = (2, 4, 7, 12)  # shards; fewer than places, one more than ranks, neither, a multiple
TURNED = 0.7  # likeness on a circle: 0.8 to 1 if orders are only turned, 0.1 to 0.4 by chance
SAME_ORDER = 0.9  # rank correlation; orders that are drawn anew have 0 ± 0.3

Make = Callable[[list[str], int, int, int], Any]
Shards = dict[str, list[str]]  # the keys in each shard, by its URL


@exercise("10.3", title="Every sample once", seconds=180)
def every_sample_once(make_stream: Make) -> Verdict:
    """Judge a stream for 0 to 3 workers on 1 to 3 ranks, then in real workers."""
    expect(
        callable(make_stream),
        "The check needs your function; this is something else.",
        "Hand it over without parentheses: make_stream.",
    )
    with room() as folder:
        for count in reversed(COUNTS):  # with many shards, what is drawn shows
            shards = small_shards(folder, count)
            _judge_alike(make_stream, shards)
            for workers, world_size in product(WORKERS, RANKS):
                if world_size <= count:  # WebDataset makes no stream of no shards
                    _judge_places(make_stream, shards, workers, world_size)
            _judge_under_torchrun(make_stream, shards)
        _judge_order(make_stream, folder)
        expect_in_a_file(make_stream)
        expect_the_same_in_real_workers(
            make_stream(list(shards), 1, 1, 2),
            lambda epoch: [sample["__key__"] for sample in epoch],
            "samples",
            "something has another answer there",
            "Decide everything from the four arguments; WebDataset asks for the worker itself.",
        )
    return right(
        "Every sample once, for 0 to 3 workers on 1 to 3 ranks, also with fewer shards than "
        "workers; in another order each epoch; and real workers agree."
    )


def _judge_places(make_stream: Make, shards: Shards, workers: int, world_size: int) -> None:
    where = (
        f"With {plural(workers, 'worker')} on each of {plural(world_size, 'rank')} and "
        f"{plural(len(shards), 'shard')}"
    )
    try:
        streams = [make_stream(list(shards), 1, rank, world_size) for rank in range(world_size)]
    except IndexError as error:  # what WebDataset raises for an empty list
        refuse(
            f"{where}, a list has too little in it, such as the shards of a rank that is left "
            f"without any: {explain(error)}.",
            "Deal the shards out like cards, urls[rank::world_size]: each rank gets one then.",
        )
    served = serve(streams, workers, lambda stream: _read(stream, shards, where))
    _judge_share(served, shards, where, streams[0])


def _judge_alike(make_stream: Make, shards: Shards) -> None:
    """Judge whether the caller's list stays as it is, and two calls agree on the shards."""
    parts, states = list[set[str]](), list[tuple[bytes, ...]]()
    for kind, where in (str, nullcontext()), (Elsewhere, in_another_process()):
        given = list(map(kind, reversed(shards)))
        here = random_numbers_of(len(parts))
        with here, where, patch("time.time", parts.__len__):
            stream = make_stream(given, 0, 0, 2)  # 0 is an epoch too
            states.append(random_state())  # WebDataset itself draws from those of Python
            expect(
                isinstance(stream, IterableDataset),
                f"make_stream returns a {type(stream).__name__}, which no worker can begin anew.",
                "Return the pipeline of WebDataset, which is an IterableDataset.",
            )
            parts.append(set(_read(stream, shards)))
        expect(
            given == [*reversed(shards)],
            "The list that your function was given is in another order afterwards: the next epoch "
            "shuffles what this one left, and ranks that were called less often have another list.",
            "Shuffle a copy; rng.permutation(urls) and rng.sample(urls, len(urls)) make one.",
        )
    expect(
        not any(map(eq, *states)),
        "Your function seeds the random numbers of the whole process: from then on the dropout of "
        "every epoch is alike.",
        "Make a generator of your own: np.random.default_rng(epoch).",
    )
    expect(
        parts[0] == parts[1],
        "Asked twice for the same rank and epoch, your function serves others. Each rank draws for "
        "itself: resampled does, a generator without a seed or with the time, and in each process "
        "its number, the hash or the set of texts. Or with_epoch cuts off what is shuffled.",
        "Shuffle with a seed that all ranks share, such as the epoch, and leave the others out.",
    )


def _judge_under_torchrun(make_stream: Make, shards: Shards) -> None:
    """Judge what two ranks serve that find their number in the environment too."""
    where = f"Under torchrun, with 2 ranks and {plural(len(shards), 'shard')}"
    served: dict[Place, list[str]] = {}
    for rank in range(2):
        with patch.dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0"):  # two nodes
            stream = make_stream(list(shards), 1, rank, 2)
            served[rank, 0] = _read(stream, shards, where)
    _judge_share(served, shards, where, stream)


def _read(stream: Any, shards: Shards, where: str = "In one process") -> list[str]:
    enough = 2 * sum(map(len, shards.values()))
    try:
        samples = list(islice(stream, enough + 1))
    except ValueError as error:
        expect(
            "No samples found" not in str(error),
            f"{where}, a worker has no shard, and WebDataset takes that for an error.",
            "A worker with nothing to do is no error here: empty_check=False.",
        )
        expect(
            "nodesplitter" not in str(error),
            f"{where}: {explain(error)}.",
            "Take the shards of the rank yourself, and say so to WebDataset: nodesplitter=None.",
        )
        raise
    keys = [sample.get("__key__") if isinstance(sample, dict) else None for sample in samples]
    expect(
        all(isinstance(key, str) for key in keys),
        "The stream gives something that is no sample of WebDataset: it has no __key__, or many.",
        "Return the pipeline as it is, without to_tuple and batched.",
    )
    expect(
        set(keys) <= set(chain(*shards.values())),
        f"{where}, samples come from shards that are not in the list: your function remembers an "
        "earlier one.",
        "Work the order out anew from the list that the function is given, in each call.",
    )
    expect(
        len(samples) <= enough,
        f"{where}, there is no end after {len(samples)} samples: resampled and repeat go on.",
        "Leave them out, and shuffle the list of shards instead.",
    )
    return [str(key) for key in keys]


def _judge_share(by_place: dict[Place, list[str]], shards: Shards, where: str, stream: Any) -> None:
    by_node = wds.split_by_node in getattr(stream, "pipeline", ())
    served = Served(by_place, set(chain(*shards.values())))
    twice, lost, wanted = served.twice, served.lost, len(served.wanted)
    expect(
        not served.all_ranks_alike,
        f"{where}, every rank serves the same samples: "
        + (
            "split_by_node asks torch.distributed or the variable RANK, and finds neither in a "
            "worker that was not forked."
            if by_node
            else "what it reads does not depend on its rank."
        ),
        "Take every world_size-th shard from the rank-th on, before WebDataset sees them: "
        "urls[rank::world_size].",
    )
    expect(
        not served.all_workers_alike,
        f"{where}, the workers of a rank serve the same samples.",
        "Leave workersplitter as it is: WebDataset divides the shards among the workers by itself.",
    )
    expect(
        not (twice and lost) or len(by_place) > 1,
        f"{where}, {twice} samples are served twice and {lost} by nobody: shards are drawn with "
        "replacement.",
        "Draw each once: rng.permutation(urls), or rng.choice(urls, len(urls), replace=False).",
    )
    expect(
        not (twice and lost),
        f"{where}, {twice} samples are served twice and {lost} by nobody: the ranks or the "
        "workers each deal from an order of their own.",
        "Shuffle with a seed that all share, such as the epoch, and divide afterwards.",
    )
    expect(
        not twice,
        f"{where}, {twice} of {wanted} samples are served more than once: the shares overlap.",
        "Deal the shards out like cards: urls[rank::world_size].",
    )
    expect(
        not (lost and by_node),
        f"{where}, {lost} of {wanted} samples are served by nobody: split_by_node finds RANK, and "
        "divides once more what you have divided already.",
        "Divide in one place, your own, and say so to WebDataset: nodesplitter=None.",
    )
    expect(
        not lost or max(worker for _, worker in by_place) == 0,
        f"{where}, {lost} of {wanted} samples are served by nobody, though without workers all "
        "come: they are divided among the workers twice.",
        "WebDataset divides the shards of a rank among its workers by itself; do it nowhere else.",
    )
    expect(
        not lost,
        f"{where}, {lost} of {wanted} samples are served by nobody.",
        "Deal the shards out like cards, urls[rank::world_size], and let no later stage drop any.",
    )
    for keys in shards.values():
        readers = served.readers(keys)
        expect(
            readers == 1,
            f"{where}, every sample is served once, but {readers} places read the same shard, and "
            "throw most of it away.",
            "Divide the shards, not the samples.",
        )


def _judge_order(make_stream: Make, folder: Path) -> None:
    shards = small_shards(folder, 12, samples=40)  # more than a small buffer can mix
    places, of_two = (_places(make_stream, shards, world_size) for world_size in (1, 2))
    expect(
        _alike(places).max() < SAME_ORDER,
        "Two of four epochs read the shards in the same order: only neighbours are ever mixed.",
        "Shuffle the list of shards, with the epoch as the seed.",
    )
    expect(
        _alike(of_two).min() < SAME_ORDER,  # two that only shuffle their own are more alike
        "With 2 ranks all epochs read the shards in the same order; with 1 rank they do not.",
        "Shuffle the list of shards for any number of ranks, with the epoch as the seed.",
    )
    # on a circle, where turning changes no distance
    circles = [np.exp(2j * np.pi * place / len(shards)) for place in places]
    expect(
        min(abs(np.vdot(a, b)) for a, b in combinations(circles, 2)) < TURNED * len(shards),
        "The order is only turned: most shards are followed by the same one in each epoch.",
        "Shuffle the list of shards, with the epoch as the seed.",
    )


def _places(make_stream: Make, shards: Shards, world_size: int) -> list[NDArray[np.int64]]:
    """Return for each of four epochs the place of each shard among the others."""
    of = {key: shard for shard, keys in enumerate(shards.values()) for key in keys}
    places = []
    for epoch in (1, 2, 3, 16_801):  # in a cycle of 8, 10 or 100 the last is the first again
        streams = (make_stream(list(shards), epoch, rank, world_size) for rank in range(world_size))
        keys = [key for stream in streams for key in _read(stream, shards)]
        sums = np.bincount([of[key] for key in keys], weights=np.arange(len(keys)))
        places.append(sums.argsort().argsort())
    return places


def _alike(places: list[NDArray[np.int64]]) -> NDArray[np.float64]:
    """Return how alike the orders of each two epochs are: 1 if they are the same."""
    return np.asarray(np.corrcoef(places))[np.triu_indices(len(places), 1)]
