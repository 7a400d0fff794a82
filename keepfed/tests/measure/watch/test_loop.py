from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

import keepfed
from keepfed.measure.trace import record
from keepfed.measure.watch.timing.ring_file import read_all, records_folder
from tests.fixtures import run_python
from tests.measure.datasets import Numbers

pytestmark = pytest.mark.usefixtures("new_records")
BATCHES = [[4.0 * n, 4.0 * n + 1, 4.0 * n + 2, 4.0 * n + 3] for n in range(3)]


def served(loader: Any) -> list[list[float]]:
    return [batch.tolist() for batch in loader]


def watched(loader: Any) -> list[list[float]]:
    return served(keepfed.watch(loader))


@pytest.mark.parametrize("workers", [0, 1])
def test_watched_loader_yields_same_batches(workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=workers)
    batches = keepfed.watch(loader)
    assert len(batches) == 3
    assert batches.dataset is loader.dataset
    assert served(batches) == served(loader) == BATCHES
    (seen,) = read_all(records_folder())
    assert (seen.totals.iterations, seen.totals.epochs) == (3, 1)
    assert len(seen.fetches) == len(seen.iterations)
    assert "3 batches in 1 epoch" in repr(batches)
    assert batches.timeline().picture.traces[0].served == 3
    assert not hasattr(dataloader._BaseDataLoaderIter, "_step_timer")  # torch is not patched


def test_persistent_workers_stop_sending_figures() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    assert watched(loader) == BATCHES
    next(iter(keepfed.watch(loader)))  # leaves the epoch early
    assert served(loader) == BATCHES
    with record() as trace:
        assert served(trace.batches(loader)) == BATCHES
    assert watched(loader) == BATCHES
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
    before = dict(vars(inner))
    for _ in range(2):  # alternately watched and unwatched
        assert watched(loader) == served(loader) == BATCHES
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
        for number, batch in enumerate(keepfed.watch(loader)):
            assert batch.tolist() == BATCHES[number], workers
            assert watched(loader) == BATCHES, workers
        assert "_get_iterator" not in vars(loader), workers


def test_unfinished_loop_over_persistent_workers_is_harmless() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    left = iter(keepfed.watch(loader))
    next(left)
    assert watched(loader) == BATCHES
    del left
    assert served(loader) == BATCHES
    (seen,) = read_all(records_folder())
    assert seen.totals.iterations == 4


def test_any_iterable_can_be_watched() -> None:
    batches = (torch.full((2,), number) for number in range(4))
    assert len(list(keepfed.watch(batches))) == 4
    (seen,) = read_all(records_folder())
    assert (seen.about["takes"], seen.totals.iterations) == ("no DataLoader", 4)
    assert seen.about["batch_bytes"] == 16


@pytest.mark.full
def test_report_is_printed_when_program_ends() -> None:
    code = (
        "import keepfed\nwatched = keepfed.watch([1, 2, 3])\n"
        "for batch in watched:\n    print(batch)\nrepr(watched)"  # repr must not cancel the report
    )
    run = run_python("-c", code, check=True)
    assert run.stdout == "1\n2\n3\n"
    assert run.stderr.count("3 batches in 1 epoch") == 1
