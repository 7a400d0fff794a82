"""Functions that divide and shuffle: each item exactly once, with limited memory."""

from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
from torch import distributed

from keepfed.loaders.stream import (
    BlockSampler,
    WorkerSlot,
    batched,
    blocks,
    buffer_shuffle,
    epoch_rng,
    interleave,
    shuffled,
    split,
)
from tests.loaders.ranks import set_rank


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("count", [0, 2, 101])
@pytest.mark.parametrize("world_size", [1, 3])
def test_every_item_goes_to_exactly_one_worker_of_its_rank(world_size: int, count: int) -> None:
    for workers in (1, 2, 5):
        places = product(range(world_size), [world_size], range(workers), [workers])
        parts = [split(range(count), WorkerSlot(*place)) for place in places]
        assert sorted(chain(*parts)) == list(range(count))
        assert (
            max(map(len, parts)) - min(map(len, parts)) <= 2
        )  # divided among ranks first, then among workers
        of_rank = split(range(count), WorkerSlot(0, world_size))
        assert sorted(chain(*parts[:workers])) == of_rank == list(range(0, count, world_size))
    assert split("hgfedcba", WorkerSlot(0, 2, 1, 2)) == ["f", "b"]  # in their original order


def test_rank_comes_from_torch_distributed_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WorkerSlot.here() == WorkerSlot(0, 1, 0, 1)
    set_rank(monkeypatch, 2, 3)
    assert WorkerSlot.here() == WorkerSlot(2, 3, 0, 1)
    meeting = (tmp_path / "meet").as_uri()
    distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    try:
        assert WorkerSlot.here() == WorkerSlot(0, 1)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "1"}, "WORLD_SIZE=None"),
        ({"WORLD_SIZE": "2"}, "RANK=None"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "whole numbers"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "`rank` is 2, but `world_size` is 2"),
    ],
)
def test_incomplete_or_invalid_rank_is_rejected(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        WorkerSlot.here()
    with pytest.raises(ValueError, match="`worker` is 2, but `num_workers` is 2"):
        WorkerSlot(0, 1, 2, 2)


def test_same_seed_epoch_and_place_give_the_same_numbers() -> None:
    def draw(*at: object) -> tuple[int, ...]:
        return tuple(epoch_rng(*at).integers(1_000_000, size=4))  # type: ignore[arg-type]

    places = [WorkerSlot(), WorkerSlot(1, 2), WorkerSlot(0, 1, 1, 2), WorkerSlot(1, 2, 1, 2)]
    asked = [(0, 0), (0, 1), (1, 0), *((0, 0, place) for place in places)]
    drawn = [draw(*at) for at in asked]
    assert drawn == [draw(*at) for at in asked]
    assert len(set(drawn)) == len(asked)


def test_shuffled_is_a_permutation_and_blocks_cover_everything() -> None:
    items = list("abcdefghijklmnop")
    assert sorted(shuffled(items, rng())) == items != shuffled(items, rng())
    assert shuffled(items, rng(1)) == shuffled(items, rng(1)) != shuffled(items, rng(2))
    assert blocks(10, 4) == [range(0, 4), range(4, 8), range(8, 10)]
    assert (blocks(0, 4), blocks(8, 4)) == ([], [range(0, 4), range(4, 8)])


@pytest.mark.parametrize("size", [1, 2, 99, 100, 101])
@pytest.mark.parametrize("length", [0, 1, 100])
def test_buffer_yields_every_item_exactly_once(length: int, size: int) -> None:
    for seed in range(5):
        order = list(buffer_shuffle(range(length), size, rng(seed)))
        assert sorted(order) == list(range(length))
        assert size > 1 or order == sorted(order)  # a buffer of one keeps the order


def test_buffer_holds_at_most_its_size() -> None:
    taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        for item in range(1000):
            taken += 1
            yield item

    for given, item in enumerate(buffer_shuffle(source(), 10, rng())):
        assert taken - given <= 11  # the buffer, and the item that is being yielded
        assert item - given <= 10


def test_every_item_of_a_full_buffer_is_equally_likely_to_leave() -> None:
    firsts = [next(buffer_shuffle(range(100), 4, rng(seed))) for seed in range(400)]
    assert set(firsts) == {0, 1, 2, 3}
    assert min(map(firsts.count, range(4))) > 60  # 100 expected, 4.6 standard deviations


def test_interleave_alternates_and_replaces_finished_streams() -> None:
    is_open: set[str] = set()

    def letters(word: str) -> Iterator[str]:
        is_open.add(word)
        assert len(is_open) <= 2
        yield from word
        is_open.discard(word)

    assert "".join(interleave(map(letters, ["aaa", "b", "", "cc", "d"]), 2)) == "abacacd"
    assert "".join(interleave(["aaa", "b", "cc"], 1)) == "aaabcc"
    assert "".join(interleave(["aaa", "b", "cc"], 9)) == "abcaca"


def test_batches_contain_every_item_and_may_drop_the_last() -> None:
    assert list(batched(range(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    for length in (6, 7):
        assert list(batched(range(length), 3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert list(batched([], 3)) == []


@pytest.mark.parametrize(
    "step",
    [
        lambda: list(blocks(10, 0)),
        lambda: list(buffer_shuffle([1], 0, rng())),
        lambda: list(interleave([[1]], 0)),
        lambda: list(batched([1], 0)),
    ],
)
def test_sizes_below_one_are_rejected(step: object) -> None:
    with pytest.raises(ValueError, match=r"must be at least 1, but is -?\d\."):
        step()  # type: ignore[operator]


@pytest.mark.parametrize(("n_samples", "block", "together"), [(0, 4, 3), (100, 7, 3), (96, 8, 1)])
def test_ranks_of_a_block_sampler_draw_every_sample_once(
    n_samples: int, block: int, together: int
) -> None:
    drawn = []
    for rank in range(3):
        sampler = BlockSampler(n_samples, block, together=together, slot=WorkerSlot(rank, 3))
        assert len(sampler) == n_samples // 3
        drawn += sampler
    assert len(set(drawn)) == len(drawn) == n_samples // 3 * 3


def test_block_sampler_has_an_order_for_each_epoch() -> None:
    for sizes in ({"block": 0}, {"block": 2, "together": 0}):
        with pytest.raises(ValueError, match="must be at least 1, but is 0"):
            BlockSampler(10, **sizes)
    sampler, orders = BlockSampler(100, 10), []
    for epoch in (0, 1, 0):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    assert orders[0] == orders[2] != orders[1]
    assert list(BlockSampler(100, 10, seed=1)) != list(BlockSampler(100, 10, seed=2))
    together = list(BlockSampler(80, 10, together=2))
    groups = [{index // 10 for index in together[at : at + 20]} for at in range(0, 80, 20)]
    assert all(len(group) == 2 for group in groups)
    assert any(index // 10 != together[0] // 10 for index in together[:10])
