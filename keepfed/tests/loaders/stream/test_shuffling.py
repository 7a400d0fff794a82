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


def test_every_item_goes_to_exactly_one_worker_of_its_rank() -> None:
    for world_size, count, workers in product((1, 3), (0, 2, 101), (1, 2, 5)):
        places = product(range(world_size), [world_size], range(workers), [workers])
        parts = [split(range(count), WorkerSlot(*place)) for place in places]
        assert sorted(chain(*parts)) == list(range(count))
        # divided among ranks first, then among workers
        assert max(map(len, parts)) - min(map(len, parts)) <= 2
        of_rank = split(range(count), WorkerSlot(0, world_size))
        assert sorted(chain(*parts[:workers])) == of_rank == list(range(0, count, world_size))
    assert split("hgfedcba", WorkerSlot(0, 2, 1, 2)) == ["f", "b"]  # in their original order


def test_rank_is_that_of_torch_or_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert WorkerSlot.here() == WorkerSlot(0, 1, 0, 1)
    set_rank(monkeypatch, 2, 3)
    assert WorkerSlot.here() == WorkerSlot(2, 3, 0, 1)
    meeting = (tmp_path / "meet").as_uri()
    distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    try:
        assert WorkerSlot.here() == WorkerSlot(0, 1)
    finally:
        distributed.destroy_process_group()


def test_incomplete_or_invalid_rank_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [
        (("1", None), "WORLD_SIZE=None"),
        ((None, "2"), "RANK=None"),
        (("one", "2"), "whole numbers"),
        (("2", "2"), "`rank` is 2, but `world_size` is 2"),
    ]
    for values, message in cases:
        with monkeypatch.context() as patch:
            for name, value in zip(("RANK", "WORLD_SIZE"), values, strict=True):
                if value is not None:
                    patch.setenv(name, value)
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


def test_buffer_yields_every_item_exactly_once() -> None:
    for length, size, seed in product((0, 1, 100), (1, 2, 99, 100, 101), range(5)):
        order = list(buffer_shuffle(range(length), size, rng(seed)))
        assert sorted(order) == list(range(length)), (length, size, seed)
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


def test_sizes_below_one_are_rejected() -> None:
    for step in (
        lambda: blocks(10, 0),
        lambda: list(buffer_shuffle([1], 0, rng())),
        lambda: list(interleave([[1]], 0)),
        lambda: list(batched([1], 0)),
        lambda: BlockSampler(10, 0),
        lambda: BlockSampler(10, 2, together=0),
    ):
        with pytest.raises(ValueError, match=r"must be at least 1, but is 0\."):
            step()


def test_block_sampler_shuffles_a_few_blocks_together() -> None:
    drawn = list(BlockSampler(80, 10, together=2))
    groups = [{index // 10 for index in drawn[at : at + 20]} for at in range(0, 80, 20)]
    assert all(len(group) == 2 for group in groups)
    assert any(index // 10 != drawn[0] // 10 for index in drawn[:10])
