"""Rows of tables, files and databases, in typical user code."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.diagnose.loops import (
    ROWS,
    Counted,
    InMemory,
    Loop,
    fixed,
    identity_collate,
    known,
    step_of,
)


def _hugging_face(folder: Path) -> Any:
    import datasets

    datasets.disable_progress_bars()
    columns = {"x": np.ones((ROWS, 32), np.float32), "label": np.arange(ROWS)}
    return datasets.Dataset.from_dict(columns).with_format("torch")


@known("rows of Hugging Face datasets as tensors", "CPU")
def _rows(folder: Path) -> Loop:
    gpu = step_of(1)
    loader = DataLoader(_hugging_face(folder), batch_size=64, shuffle=True)
    return loader, lambda batch: gpu(batch["x"])


@fixed("rows of Hugging Face datasets as tensors", "precompute")
def _tensors(folder: Path) -> Loop:
    return DataLoader(InMemory(ROWS, 32), batch_size=64, shuffle=True), step_of(1)


class TensorBatches(TensorDataset):
    """Rows of tensors, with one access per batch."""

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, ...]]:
        return list(zip(*(tensor[indices] for tensor in self.tensors), strict=True))


@known("TensorDataset, sample by sample", "CPU")
def _tensor_dataset(folder: Path) -> Loop:
    return _tensors_by(TensorDataset)


@fixed("TensorDataset, sample by sample", "one-access")
def _tensor_batches(folder: Path) -> Loop:
    return _tensors_by(TensorBatches)


def _tensors_by(kind: type[TensorDataset]) -> Loop:
    data, gpu = kind(torch.ones(ROWS, 64), torch.arange(ROWS)), step_of(0.5)
    return DataLoader(data, batch_size=256, shuffle=True), lambda batch: gpu(batch[0])


class Rows(Counted):
    """Rows of an HDF5 file, opened in `__init__`."""

    def __init__(self, folder: Path):
        """Write the file."""
        with h5py.File(folder / "rows.h5", "w") as file:
            file["x"] = np.ones((ROWS, 128), np.float32)
        self.file = h5py.File(folder / "rows.h5")

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.file["x"][index])


@known("HDF5 row by row", "CPU")
def _hdf5(folder: Path) -> Loop:
    return DataLoader(Rows(folder), batch_size=128, shuffle=True), step_of(5)


@fixed("HDF5 row by row", "precompute")
def _read(folder: Path) -> Loop:
    return DataLoader(InMemory(ROWS, 128), batch_size=128, shuffle=True), step_of(5)


class RowsOfBatch(Rows):
    """The same rows with one access per batch, for which HDF5 needs sorted indices."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        order, back = np.unique(indices, return_inverse=True)
        return list(torch.from_numpy(self.file["x"][order][back]))


@fixed("HDF5 row by row", "one-access")
def _rows_of_batch(folder: Path) -> Loop:
    return DataLoader(RowsOfBatch(folder), batch_size=128, shuffle=True), step_of(5)


class Frame(Counted):
    """Rows of a table read with `iloc`, as in most competition notebooks."""

    def __init__(self) -> None:
        import pandas

        self.table = pandas.DataFrame(np.ones((ROWS, 20), np.float32))

    def __getitem__(self, index: int) -> Any:
        """Return features and label of one row."""
        row = self.table.iloc[int(index)]
        return torch.tensor(row.iloc[:-1].to_numpy()), torch.tensor(row.iloc[-1])


@known("a table row by row", "CPU")
def _frame(folder: Path) -> Loop:
    gpu = step_of(1.5)
    return DataLoader(Frame(), batch_size=64, shuffle=True), lambda batch: gpu(batch[0])


class Columns(Frame):
    """The same rows, with one access per batch."""

    def __getitems__(self, indices: list[int]) -> Any:
        """Return features and label of each row of a batch."""
        rows = torch.from_numpy(self.table.iloc[indices].to_numpy(copy=True))
        return list(zip(rows[:, :-1], rows[:, -1], strict=True))


@fixed("a table row by row")
def _columns(folder: Path) -> Loop:
    gpu = step_of(1.5)
    return DataLoader(Columns(), batch_size=64, shuffle=True), lambda batch: gpu(batch[0])


class Pulses(Counted):
    """One database query per event, as in GraphNeT's SQLite dataset."""

    count = 4000

    def __init__(self, folder: Path):
        """Write 4,000 events of 50 pulses."""
        self.path = str(folder / "events.db")
        with sqlite3.connect(self.path) as base:
            base.execute("create table pulses (event integer, t real, q real)")
            rows = ((event, t, 1.0) for event in range(4000) for t in range(50))
            base.executemany("insert into pulses values (?, ?, ?)", rows)
            base.execute("create index by_event on pulses (event)")
        self.base: sqlite3.Connection | None = None

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.base is None:
            self.base = sqlite3.connect(self.path)
        query = "select t, q from pulses where event = ?"
        return torch.tensor(self.base.execute(query, (int(index),)).fetchall())


@known("a query for each event", "CPU")
def _sqlite(folder: Path) -> Loop:
    return DataLoader(Pulses(folder), batch_size=64, shuffle=True), step_of(3)


class Archives(Counted):
    """One compressed file per event."""

    count = 40_000

    def __init__(self, folder: Path):
        self.folder = folder

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.load(self.folder / f"{index % 400}.npz")["x"])


@known("npz per event", "CPU")
def _npz(folder: Path) -> Loop:
    for number in range(400):
        np.savez_compressed(folder / f"{number}.npz", x=np.ones((200, 4), np.float32))
    return DataLoader(Archives(folder), batch_size=32, num_workers=1), step_of(2)


@fixed("npz per event", "precompute")
def _unpacked(folder: Path) -> Loop:
    return DataLoader(InMemory(40_000, 800), batch_size=32, num_workers=1), step_of(2)


class Hits(Counted):
    """Events as lists of hits, each hit a dict."""

    def __getitem__(self, index: int) -> list[dict[str, float]]:
        return [{"x": float(i), "y": 0.5, "t": 0.1 * i, "q": 1.0} for i in range(60)]


class HitArrays(Hits):
    """The same events as arrays."""

    def __getitem__(self, index: int) -> Any:
        """Return the hits of one event: x, y, t, q."""
        i = torch.arange(60.0)
        return torch.stack([i, torch.full_like(i, 0.5), 0.1 * i, torch.ones_like(i)], 1)


@known("lists of dicts, two workers", "collate or IPC")
def _dicts(folder: Path) -> Loop:
    loader = DataLoader(Hits(), batch_size=64, num_workers=2, collate_fn=identity_collate)
    gpu = step_of(5)
    return loader, lambda batch: gpu(torch.zeros(8))


@fixed("lists of dicts, two workers")
def _no_dicts(folder: Path) -> Loop:
    gpu = step_of(5)
    loader = DataLoader(HitArrays(), batch_size=64, num_workers=2)
    return loader, lambda batch: gpu(torch.zeros(8))
