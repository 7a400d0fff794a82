from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

import course_utils as cu
from course_utils.measure.trace import record
from course_utils.measure.watch import turns
from course_utils.measure.watch.record import read_all, records_folder
from tests.measure.datasets import Numbers


@pytest.fixture(autouse=True)
def _records(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(turns, "_writers", [])
    records_folder.cache_clear()
    yield
    records_folder.cache_clear()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_is_watched_gives_what_it_gives(workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=workers)
    watched = cu.watch(loader)
    assert len(watched) == 3
    assert watched.dataset is loader.dataset
    assert [batch.tolist() for batch in watched] == [batch.tolist() for batch in loader]
    (seen,) = read_all(records_folder())
    assert (seen.totals.turns, seen.totals.epochs) == (3, 1)
    assert all(turn.done for turn in seen.turns)
    assert "3 batches in 1 epoch" in repr(watched)
    assert watched.timeline().picture.traces[0].served == 3
    assert not hasattr(dataloader._BaseDataLoaderIter, "_watched_turns")  # torch is as it was


def test_persistent_workers_send_nothing_but_batches_once_nobody_watches() -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=1, persistent_workers=True)
    watched = [batch.tolist() for batch in cu.watch(loader)]
    next(iter(cu.watch(loader)))  # and is left in the middle
    assert [batch.tolist() for batch in loader] == watched
    with record() as trace:
        assert [batch.tolist() for batch in trace.batches(loader)] == watched
    again = cu.watch(loader)
    assert [batch.tolist() for batch in again] == watched
    assert all(turn.done for turn in read_all(records_folder())[0].turns)


def test_anything_else_that_gives_batches_can_be_watched() -> None:
    def batches() -> Iterator[torch.Tensor]:
        for number in range(4):
            yield torch.full((2,), number)

    assert len(list(cu.watch(batches()))) == 4
    (seen,) = read_all(records_folder())
    assert (seen.about["takes"], seen.totals.turns) == ("no DataLoader", 4)
    assert seen.about["batch_bytes"] == 16


def test_what_a_function_makes_can_be_watched_one_by_one() -> None:
    made = iter(range(9))
    batches = iter(cu.watch(iter(lambda: (next(made), torch.zeros(2)), None)))
    assert [next(batches)[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    (seen,) = read_all(records_folder())
    assert (seen.about["takes"], seen.totals.turns) == ("no DataLoader", 5)


@pytest.mark.full
def test_what_was_found_is_told_when_the_program_ends() -> None:
    code = "import course_utils as cu\nfor batch in cu.watch([1, 2, 3]):\n    print(batch)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "1\n2\n3\n"
    assert "3 batches in 1 epoch" in run.stderr
