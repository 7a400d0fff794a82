"""Keep samples of one size in one file, and load a batch with one gather: the fast path.

    write_records("train.npy", {"pulses": pulses, "energy": energy})  # (n, 128, 4) and (n,)
    loader = RecordLoader("train.npy", batch_size=1024)
    for batch in loader: ...  # {"pulses": (1024, 128, 4), "energy": (1024,)}

The file is a plain .npy with one record per sample, so np.load reads it too. Why it is fast: no
file is opened per sample, nothing is decoded, Python runs once per batch and not once per sample,
and a record moves as one row of 8-byte words, whatever fields it has.

What is found: when the file is opened, that its size is not what its header says; when a process
first reads a record, by its checksum, a change within 8 bytes of it, a record in the wrong place, a
header of another type. What is not: changes that cancel in the sum, and words of 8 bytes that
changed places. A file that is cut short while it is mapped ends the process.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset
from tqdm import tqdm

from course_utils.loading.fast.mapped import map_array
from course_utils.loading.fast.mapped_loader import MappedLoader
from course_utils.loading.fast.ragged import RaggedLoader
from course_utils.loading.workers import LazyFile
from course_utils.paths import need_room

__all__ = ["RaggedLoader", "RecordLoader", "Records", "write_records"]

Batch = dict[str, torch.Tensor]


class Records(Dataset[Batch]):
    """The records of a file, mapped into memory by each process that reads them.

    `records[3]` is a sample, `records[[3, 1]]` a batch, both in memory of their own. To another
    process goes the path, not the data.
    """

    def __init__(self, path: str | Path):
        """Read the header, and no records.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it is shorter than its header says, or no file of write_records.
        """
        self.path = str(path)
        table = map_array(self.path)
        names = table.dtype.names or ()
        if names[-1:] != ("checksum",) or table.ndim != 1 or not len(table):
            raise OSError(f"{path} is a .npy file without records; make one with write_records.")
        self.dtype, self.length, self.names = table.dtype, len(table), names[:-1]
        self._mapping = LazyFile(_Mapping, self.path, _seal(self.dtype))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int | Sequence[int]) -> Batch:
        if isinstance(index, int | np.integer):
            return {name: column[0] for name, column in self[[index]].items()}
        places = [range(len(self))[one] for one in index]
        indices = torch.tensor(places, dtype=torch.int64)
        return self.read(indices, self.buffer(len(indices)))

    def buffer(self, batch_size: int) -> torch.Tensor:
        """Return memory for a batch: int64 (batch_size, words of a record)."""
        return torch.empty(batch_size, self.dtype.itemsize // 8, dtype=torch.int64)

    def read(self, indices: torch.Tensor, buffer: torch.Tensor) -> Batch:
        """Return the records at `indices`, int64 (batch,): a view of `buffer` for each field.

        Raises:
            OSError: a record is not as it was written.
        """
        mapping = self._mapping.file
        rows = torch.index_select(mapping.words, 0, indices, out=buffer[: len(indices)])
        if mapping.left:
            mapping.check(rows, indices)
        table = rows.numpy().view(self.dtype)[:, 0]
        return {name: torch.from_numpy(table[name]) for name in self.names}


class _Mapping:
    """The records as rows of words, and which of them this process has yet to check."""

    def __init__(self, path: str, seal: int):
        self.path, self.seal, table = path, seal, map_array(path)
        self.words = torch.from_numpy(table.view(np.int64).reshape(len(table), -1))
        self.left, self._unchecked = len(table), torch.ones(len(table), dtype=torch.bool)
        self._lock = Lock()

    def check(self, rows: torch.Tensor, indices: torch.Tensor) -> None:
        """Compare rows with their checksums, unless all were compared before."""
        if not self._unchecked[indices].any():
            return
        broken = indices[rows.sum(1) + indices != self.seal]
        if len(broken):
            raise OSError(
                f"Record {int(broken[0])} of {self.path} is corrupted; write the file again, or "
                "copy it again from where it came."
            )
        with self._lock:  # a record that comes twice, or in two threads, counts once
            self.left -= int(self._unchecked[torch.unique(indices)].sum())
            self._unchecked[indices] = False


class RecordLoader(MappedLoader[Batch]):
    """Load a file of write_records in shuffled batches, a dict with a tensor for each field.

    The tensors of a batch are views of one buffer, with the other fields between their rows;
    `contiguous()` gives one without gaps.
    """

    opens = Records


def write_records(
    path: str | Path,
    fields: Mapping[str, ArrayLike],
    *,
    chunk: int = 8192,
    progress: bool = False,
) -> int:
    """Write one record per sample, and return the bytes of the file.

    It is written beside its place and renamed when it is whole. One process may write at a time.

    Args:
        path: the file to make or replace, by custom `.npy`.
        fields: arrays of numbers with the same length; they may be mapped files, larger than the
            memory.
        chunk: records that are put together and written at once.
        progress: whether a bar shows how far it is.

    Raises:
        ValueError: there is nothing to write, the lengths differ, or a field holds no numbers.
        CourseError: the disk has no room.
    """
    path, arrays = Path(path), {name: np.asanyarray(field) for name, field in fields.items()}
    dtype, length = _record_type(arrays), len(next(iter(arrays.values())))
    need_room(path.parent, length * dtype.itemsize, otherwise="or write them elsewhere")
    unfinished = path.with_name(f".{path.name}.unfinished")
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    try:
        with unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (length,)})
            for start in tqdm(range(0, length, chunk), "Records", disable=not progress):
                part = {name: array[start : start + chunk] for name, array in arrays.items()}
                file.write(_sealed(part, dtype, start).data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path.stat().st_size


def _record_type(arrays: Mapping[str, NDArray[Any]]) -> np.dtype[np.void]:
    """Return the type of a record: its fields, each at a multiple of its size, and a checksum."""
    if not arrays or "checksum" in arrays:
        raise ValueError("Records need a field, and none named 'checksum'; name the fields anew.")
    for name, array in arrays.items():
        if array.ndim == 0 or not _fits_a_tensor(array.dtype):
            raise ValueError(
                f"The field {name!r} is {array.dtype} with shape {array.shape}; give an array of "
                "numbers, one row per sample."
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        raise ValueError(f"There are {lengths}; give every field the same number of rows, from 1.")
    types = [(n, array.dtype.newbyteorder("<"), array.shape[1:]) for n, array in arrays.items()]
    return np.dtype([*types, ("checksum", "<i8")], align=True)


def _fits_a_tensor(dtype: np.dtype[Any]) -> bool:
    try:
        torch.from_numpy(np.empty(0, dtype.newbyteorder("=")))
    except TypeError:
        return False
    return True


def _seal(dtype: np.dtype[np.void]) -> int:
    """Return what the words of record 0 add up to, its checksum included; of record 1 one less.

    It depends on the type, so that a header which has changed is found too.
    """
    return zlib.crc32(repr(np.lib.format.dtype_to_descr(dtype)).encode())


def _sealed(part: Mapping[str, NDArray[Any]], dtype: np.dtype[np.void], start: int) -> NDArray[Any]:
    """Return the bytes of the records from number `start` on."""
    length = len(next(iter(part.values())))
    table = np.zeros(length, dtype)
    for name, array in part.items():
        table[name] = array
    words = table.view(np.int64).reshape(length, -1)
    table["checksum"] = _seal(dtype) - np.arange(start, start + length) - words.sum(1)
    return words
