from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

import keepfed
from keepfed.measure.trace import record
from keepfed.measure.watch.timing import writer
from keepfed.measure.watch.timing.ring_file import read_all, records_folder
from tests.measure.datasets import Numbers


@pytest.fixture(autouse=True)
def _records(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(writer, "_writers", [])
    records_folder.cache_clear()
    yield
    records_folder.cache_clear()


@pytest.mark.parametrize("workers", [0, 1])
def test_watched_loader_yields_same_batches(workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=workers)
    watched = keepfed.watch(loader)
    assert len(watched) == 3
    assert watched.dataset is loader.dataset
    assert [batch.tolist() for batch in watched] == [batch.tolist() for batch in loader]
    (seen,) = read_all(records_folder())
    assert (seen.totals.iterations, seen.totals.epochs) == (3, 1)
    assert len(seen.fetches) == len(seen.iterations)
    assert "3 batches in 1 epoch" in repr(watched)
    assert watched.timeline().picture.traces[0].served == 3
    assert not hasattr(dataloader._BaseDataLoaderIter, "_step_timer")  # torch is not patched


def test_persistent_workers_stop_sending_figures() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    watched = [batch.tolist() for batch in keepfed.watch(loader)]
    next(iter(keepfed.watch(loader)))  # leaves the epoch early
    assert [batch.tolist() for batch in loader] == watched
    with record() as trace:
        assert [batch.tolist() for batch in trace.batches(loader)] == watched
    again = keepfed.watch(loader)
    assert [batch.tolist() for batch in again] == watched
    (seen,) = read_all(records_folder())
    assert len(seen.fetches) == len(seen.iterations)


class Ahead(DataLoader[Any]):
    """Loader whose iterator is one batch ahead, as in Accelerate."""

    def __iter__(self) -> Any:
        batches = super().__iter__()
        batch = next(batches)
        for later in batches:
            yield batch
            batch = later
        yield batch


class Prepared:
    """Wrapper that claims the class of its loader, as Accelerate does."""

    def __init__(self, loader: DataLoader[float]):
        self.base_dataloader = loader

    @property
    def __class__(self) -> Any:
        return DataLoader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base_dataloader, name)

    def __iter__(self) -> Any:
        yield from self.base_dataloader


@pytest.mark.parametrize("kind", [Ahead, Prepared])
@pytest.mark.parametrize("workers", [0, 1])
def test_watch_finds_data_loader_in_wrapper(kind: Any, workers: int) -> None:
    options: Any = {"batch_size": 4, "num_workers": workers, "persistent_workers": workers > 0}
    if kind is Ahead:
        loader = inner = Ahead(Numbers(), **options)
    else:
        loader = Prepared(inner := DataLoader(Numbers(), **options))
    expected = [batch.tolist() for batch in DataLoader(Numbers(), batch_size=4)]
    before = dict(vars(inner))
    for _ in range(2):  # alternately watched and unwatched
        assert [batch.tolist() for batch in keepfed.watch(loader)] == expected
        assert [batch.tolist() for batch in loader] == expected
    next(iter(keepfed.watch(loader)))  # leaves the epoch early
    assert {**vars(inner), "_iterator": None} == before | {"_iterator": None}
    (seen,) = read_all(records_folder())
    asked = 6 + (2 if kind is Ahead else 1)
    assert (seen.totals.iterations, seen.totals.epochs) == (asked, 2)
    assert len(seen.fetches) == len(seen.iterations)
    assert seen.about["workers"] == workers


def test_nested_loops_over_one_loader_lose_no_batch() -> None:
    for workers in (0, 1):
        loader = DataLoader(Numbers(), batch_size=4, num_workers=workers)
        expected = [batch.tolist() for batch in loader]
        outer = keepfed.watch(loader)
        for number, batch in enumerate(outer):
            assert batch.tolist() == expected[number], workers
            assert [inner.tolist() for inner in keepfed.watch(loader)] == expected, workers
        assert "_get_iterator" not in vars(loader), workers


def test_unfinished_loop_over_persistent_workers_is_harmless() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    left = iter(keepfed.watch(loader))
    next(left)
    expected = [batch.tolist() for batch in DataLoader(Numbers(), batch_size=4)]
    assert [batch.tolist() for batch in keepfed.watch(loader)] == expected
    del left
    assert [batch.tolist() for batch in loader] == expected
    (seen,) = read_all(records_folder())
    assert seen.totals.iterations == 4


def test_any_iterable_can_be_watched() -> None:
    def batches() -> Iterator[torch.Tensor]:
        for number in range(4):
            yield torch.full((2,), number)

    assert len(list(keepfed.watch(batches()))) == 4
    (seen,) = read_all(records_folder())
    assert (seen.about["takes"], seen.totals.iterations) == ("no DataLoader", 4)
    assert seen.about["batch_bytes"] == 16


@pytest.mark.full
def test_report_is_printed_when_program_ends() -> None:
    code = (
        "import keepfed\nwatched = keepfed.watch([1, 2, 3])\n"
        "for batch in watched:\n    print(batch)\nrepr(watched)"  # repr must not cancel the report
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n2\n3\n"
    assert run.stderr.count("3 batches in 1 epoch") == 1
