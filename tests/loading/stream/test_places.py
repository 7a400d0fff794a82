"""Places: where a copy of a dataset runs, and which part is its own."""

from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset

from course_utils.loading.stream import Place, split
from tests.loading.stream.ranks import set_rank


class Numbers(IterableDataset[int]):
    """Ten numbers, of which each place has its own; lies where a worker can import it."""

    def __iter__(self) -> Iterator[int]:
        return iter(split(range(10), Place.here()))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 60, 101])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_item_goes_to_exactly_one_place_of_its_rank(world_size: int, count: int) -> None:
    for workers in range(1, 6):
        places = product(range(world_size), [world_size], range(workers), [workers])
        parts = [split(range(count), Place(*place)) for place in places]
        assert sorted(chain(*parts)) == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 2  # ranks first, then workers
        of_rank = split(range(count), Place(0, world_size))
        assert sorted(chain(*parts[:workers])) == of_rank == list(range(0, count, world_size))
    assert split("hgfedcba", Place(0, 2, 1, 2)) == ["f", "b"]  # in the order that they had


@pytest.mark.slow
def test_workers_find_their_place_under_every_start_method(start_method: str) -> None:
    loader = DataLoader(Numbers(), num_workers=2, multiprocessing_context=start_method, timeout=120)
    # one worker after the other, one sample each
    assert torch.cat(list(loader)).tolist() == list(range(10))


def test_the_rank_comes_from_the_environment_but_torch_distributed_knows_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Place.here() == Place(0, 1, 0, 1)
    set_rank(monkeypatch, 2, 3)
    assert Place.here() == Place(2, 3, 0, 1)
    meeting = (tmp_path / "meet").as_uri()
    distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    try:
        assert Place.here() == Place(0, 1)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": "1"}, "WORLD_SIZE=None"),
        ({"WORLD_SIZE": "2"}, "RANK=None"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "whole numbers"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "no rank 2 among 2"),
    ],
)
def test_half_a_rank_is_refused(
    variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        Place.here()


@pytest.mark.parametrize("numbers", [(-1, 1, 0, 1), (1, 1, 0, 1), (0, 1, 2, 2), (0, 1, 0, 0)])
def test_a_place_that_is_not_there_is_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="count from 0"):
        Place(*numbers)
