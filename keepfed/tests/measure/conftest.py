"""Fixtures for the tests of measuring: new records of watched loops."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.utils.data import DataLoader, dataloader

from keepfed.measure.watch import attach
from keepfed.measure.watch.timing import writer
from keepfed.measure.watch.timing.ring_file import FOLDER, read_all, records_folder
from tests.measure.watch.handmade import Observed


@pytest.fixture
def new_records(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write the records of a test to a new folder."""
    monkeypatch.setattr(writer, "_writers", [])
    records_folder.cache_clear()
    yield
    records_folder.cache_clear()


@pytest.fixture
def seen(new_records: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Observed:
    """Patch torch, and return a function that reads the figures of all loaders so far."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    iterators = dataloader._BaseDataLoaderIter
    for owner, name in {DataLoader: "_get_iterator", iterators: "__next__"}.items():
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(iterators, "_step_timer", None, raising=False)
    attach._patch(dataloader)
    return lambda: read_all(tmp_path)
