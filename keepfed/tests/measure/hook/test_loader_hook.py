import multiprocessing
from typing import Any
from unittest.mock import Mock

import pytest
from torch.utils.data import DataLoader, Subset

from keepfed.errors import KeepfedError
from keepfed.measure.hook.loader_hook import Hook, Listener, end, reads_whole_batches
from tests.measure.datasets import Noted, Numbers, Stream, note_worker


class Diary(Listener):
    """A listener that logs its calls and returns the log with the batch."""

    def __init__(self, name: str = "") -> None:
        self.name, self.told = name, []

    def worker_started(self, worker_id: int) -> None:
        self.told = [f"worker {worker_id}"]

    def fetch_begins(self, index: Any) -> None:
        self.told += [f"fetch {index}"]

    def samples_made(self, samples: Any) -> None:
        self.told += ["collate"]

    def batch_made(self, batch: Any) -> Any:
        told, self.told = [*self.told, "made"], []
        return self.name, told, batch


def test_torch_without_a_private_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(DataLoader, "_get_iterator")
    with pytest.raises(KeepfedError, match=r"has no _get_iterator, .* Install a newer keepfed"):
        Hook(DataLoader(Numbers(2)), [Diary()])


@pytest.mark.parametrize("dataset", [Numbers(2), Stream(2)], ids=["map-style", "iterable"])
@pytest.mark.parametrize("workers", [0, 1])
def test_listeners_run_in_the_worker_and_nest(dataset: Any, workers: int) -> None:
    loader = DataLoader(dataset, batch_size=2, num_workers=workers)
    ((outer, told, (inner, _, _)),) = Hook(loader, [Diary("a"), Diary("b")]).begin(loader)
    assert [word.split()[0] for word in told] == ["worker"] * workers + ["fetch", "collate", "made"]
    assert (outer, inner) == ("a", "b")


def test_listen_calls_and_restores_the_loader_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = DataLoader(Noted(), batch_size=6, num_workers=2, worker_init_fn=note_worker)
    before = dict(vars(loader))
    batches = [batch.tolist() for _, _, batch in Hook(loader, [Diary()]).begin(loader)]
    assert batches == [[0.0] * 6, [1.0] * 6]
    assert vars(loader) == before
    assert [batch.tolist() for batch in loader] == batches  # without listeners
    monkeypatch.setattr(DataLoader, "__iter__", Mock(side_effect=OSError("no more processes")))
    with pytest.raises(OSError, match="no more processes"):
        Hook(loader, [Diary()]).begin(loader)
    assert vars(loader) == before


def test_end_stops_an_epoch_and_its_workers() -> None:
    for workers in (0, 2):
        batches = iter(DataLoader(Numbers(40), num_workers=workers))
        next(batches)
        end(batches)
        assert not multiprocessing.active_children(), workers
        with pytest.raises(StopIteration):
            next(batches)


def test_subset_reads_whole_batches_if_its_dataset_does() -> None:
    class Whole(Numbers):
        def __getitems__(self, indices: list[int]) -> list[float]:
            return [float(index) for index in indices]

    rows = Whole()
    parts = [Numbers(), Subset(Numbers(), [1, 2]), rows, Subset(Subset(rows, [1, 2]), [0])]
    assert [reads_whole_batches(DataLoader(one)) for one in parts] == [False, False, True, True]
    assert not reads_whole_batches([1, 2])
