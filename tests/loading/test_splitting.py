import os
from collections.abc import Iterator
from itertools import chain, product
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.utils.data import DataLoader, IterableDataset

from course_utils.loading.stream import Place, split
from course_utils.loading.stream.splitting import count_batches, even_batches
from tests.loading.ranks import MORE_WORKERS_THAN_CORES, set_rank

WORKERS = range(6)
RANKS = range(1, 4)


def places(world_size: int, num_workers: int) -> list[Place]:
    workers = max(1, num_workers)
    return [Place(*at) for at in _numbers(world_size, workers)]


def _numbers(world_size: int, workers: int) -> Iterator[tuple[int, int, int, int]]:
    for rank, worker in product(range(world_size), range(workers)):
        yield rank, world_size, worker, workers


class Numbers(IterableDataset[int]):
    """The numbers of this place; has to live where a worker can import it."""

    def __init__(self, count: int):
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(split(range(self.count), Place.here()))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 60, 101])
@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("world_size", RANKS)
def test_every_item_goes_to_exactly_one_place(
    world_size: int, num_workers: int, count: int
) -> None:
    parts = [split(range(count), place) for place in places(world_size, num_workers)]

    assert sorted(chain(*parts)) == list(range(count))
    assert max(map(len, parts)) - min(map(len, parts)) <= 2  # ranks first, then workers


def test_the_rank_is_split_before_the_worker() -> None:
    whole_rank = split(range(20), Place(1, 2))
    workers = [split(range(20), Place(1, 2, worker, 3)) for worker in range(3)]

    assert whole_rank == list(range(1, 20, 2))
    assert sorted(chain(*workers)) == whole_rank


def test_the_order_of_the_items_is_kept() -> None:
    assert split("hgfedcba", Place(0, 2, 1, 2)) == ["f", "b"]


@pytest.mark.slow
@pytest.mark.filterwarnings(MORE_WORKERS_THAN_CORES)
@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_workers_of_all_ranks_together_have_every_sample_once(
    num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for world_size in RANKS:
        seen = []
        for rank in range(world_size):
            set_rank(monkeypatch, rank, world_size)
            loader = DataLoader(Numbers(17), batch_size=4, num_workers=num_workers)
            seen += torch.cat(list(loader)).tolist()
        assert sorted(seen) == list(range(17))


@pytest.mark.slow
def test_workers_find_their_place_under_every_start_method(start_method: str) -> None:
    loader = DataLoader(
        Numbers(10), num_workers=2, multiprocessing_context=start_method, timeout=120
    )

    # one worker after the other, one sample each
    assert torch.cat(list(loader)).tolist() == list(range(10))


def test_a_process_by_itself_is_the_only_place() -> None:
    assert Place.here() == Place(0, 1, 0, 1)


def test_the_rank_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_rank(monkeypatch, 2, 3)

    assert Place.here() == Place(2, 3, 0, 1)


def test_torch_distributed_knows_better_than_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rank(monkeypatch, 2, 3)
    distributed.init_process_group(
        "gloo", init_method=(tmp_path / "meet").as_uri(), rank=0, world_size=1
    )
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
        monkeypatch.setitem(os.environ, name, value)
    with pytest.raises(ValueError, match=message):
        Place.here()


@pytest.mark.parametrize("numbers", [(-1, 1, 0, 1), (1, 1, 0, 1), (0, 1, 2, 2), (0, 1, 0, 0)])
def test_a_place_that_is_not_there_is_refused(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="count from 0"):
        Place(*numbers)


@pytest.mark.parametrize(
    ("num_workers", "drop_last", "seen"), [(0, True, 96), (2, True, 96), (4, True, 64)]
)
def test_drop_last_drops_a_batch_of_every_worker(
    num_workers: int, drop_last: bool, seen: int
) -> None:
    """100 samples in batches of 16, of which 4 workers leave 36 behind."""
    batches = count_batches([1] * 100, 16, num_workers=num_workers, drop_last=drop_last)

    assert 16 * batches == seen


@pytest.mark.slow
@pytest.mark.filterwarnings(MORE_WORKERS_THAN_CORES)
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2, 3])
def test_the_count_of_batches_is_what_a_loader_gives(
    num_workers: int, drop_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for world_size in (1, 2):
        counted = []
        for rank in range(world_size):
            set_rank(monkeypatch, rank, world_size)
            loader = DataLoader(Numbers(50), 8, num_workers=num_workers, drop_last=drop_last)
            expected = count_batches(
                [1] * 50,
                8,
                rank=rank,
                world_size=world_size,
                num_workers=num_workers,
                drop_last=drop_last,
            )
            counted.append(len(list(loader)))
            assert counted[-1] == expected
        assert min(counted) == even_batches(
            [1] * 50, 8, world_size=world_size, num_workers=num_workers, drop_last=drop_last
        )


def test_ranks_end_evenly_where_the_shortest_one_ends() -> None:
    sizes = [100, 30, 100]  # rank 0 has the first and the last of them

    assert count_batches(sizes, 10, rank=0, world_size=2) == 20
    assert count_batches(sizes, 10, rank=1, world_size=2) == 3
    assert even_batches(sizes, 10, world_size=2) == 3
    assert even_batches(sizes, 10, world_size=4) == 0  # fewer shards than ranks
