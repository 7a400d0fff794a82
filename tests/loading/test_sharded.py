from collections.abc import Iterator, Sequence

import pytest

from course_utils.loading.stream import ShardedStream
from tests.loading.ranks import set_rank


class Letters(ShardedStream[str, str]):
    """A shard is a word, its samples are the letters."""

    def read(self, shards: Sequence[str]) -> Iterator[str]:
        return iter("".join(shards))

    def size(self, shard: str) -> int:
        return len(shard)


def letters(**options: int | bool) -> Letters:
    words = ["abc", "de", "fghi", "j", "kl"]
    return Letters(words, **({"shuffle_shards": True, "buffer": 3, "seed": 0} | options))


def test_all_ranks_together_serve_every_sample_once_and_know_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served = []
    for rank in range(3):
        set_rank(monkeypatch, rank, 3)
        mine = list(letters())
        assert len(mine) == len(letters())
        served += mine
    assert sorted(served) == list("abcdefghijkl")


def test_an_epoch_has_an_order_of_its_own_that_comes_again() -> None:
    stream, orders = letters(), []
    for epoch in (0, 1, 0):
        stream.set_epoch(epoch)
        orders.append(list(stream))
    assert orders[0] == orders[2] != orders[1]


def test_without_shuffling_samples_come_as_on_disk() -> None:
    assert list(letters(shuffle_shards=False, buffer=1)) == list("abcdefghijkl")


def test_a_buffer_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="take at least 1"):
        letters(buffer=0)
