import sys
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from keepfed.loaders.workers import worker_init, worker_rng
from tests.loaders.workers.worker_datasets import Draws, Epochs, Pools, crash, first

QUICK = "spawn" if sys.platform == "win32" else "fork"


def loader(dataset: Dataset[Any], **options: Any) -> DataLoader[Any]:
    return DataLoader(dataset, **{"num_workers": 2, "timeout": 120} | options)


def drawn(options: dict[str, Any], seed: int = 3, epochs: int = 1) -> list[int]:
    torch.manual_seed(seed)
    numbers = loader(Draws(), **options)
    return [int(number) for _ in range(epochs) for number in numbers]


@pytest.mark.slow
def test_every_pool_of_a_worker_has_one_thread(start_method: str) -> None:
    options = {"num_workers": 1, "collate_fn": first, "multiprocessing_context": start_method}
    told = next(iter(loader(Pools(), worker_init_fn=worker_init, **options)))
    assert set(told["pools"].values()) == {1}
    if start_method == "spawn":
        assert told["new"]  # a library loaded after worker_init
    assert len(told["pools"]) >= 3  # pools of torch, NumPy and SciPy


@pytest.mark.slow
def test_crashed_worker_names_the_line(capfd: pytest.CaptureFixture[str]) -> None:
    broken = loader(Draws(), num_workers=1, worker_init_fn=crash, multiprocessing_context=QUICK)
    with pytest.raises(RuntimeError, match="worker"):
        list(broken)
    assert 'worker_datasets.py", line' in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.many_workers
def test_persistent_workers_draw_new_numbers_and_see_the_epoch(start_method: str) -> None:
    options = {"multiprocessing_context": start_method, "persistent_workers": True}
    numbers = drawn(options, epochs=2)
    assert len(set(numbers)) == 16
    assert drawn(options | {"multiprocessing_context": QUICK}, epochs=2) == numbers
    dataset = Epochs()
    epochs, seen = loader(dataset, **options), []
    for epoch in (0, 7, 3):
        dataset.epoch.value = epoch
        seen.append([int(number) for number in epochs])
    assert seen == [[0, 0], [7, 7], [3, 3]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_new_workers_draw_new_numbers_each_epoch(num_workers: int) -> None:
    options = {"num_workers": num_workers} | ({"timeout": 0} if not num_workers else {})
    numbers = drawn(options, epochs=2)
    here = [int(worker_rng().integers(2**60)) for _ in range(8)]  # not inherited by workers
    assert drawn(options, epochs=2) == numbers
    assert len({*numbers, *here, *drawn(options, seed=4)}) == 16 + 8 + 8


def test_ranks_with_the_same_seed_draw_different_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = set()
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "3")
        numbers |= set(drawn({"num_workers": 0, "timeout": 0}))
    assert len(numbers) == 24
