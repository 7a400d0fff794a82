"""Store samples of equal size in one file, and load a batch with one `index_select`.

    write_records("train.npy", {"pulses": pulses, "energy": energy})  # (n, 128, 4) and (n,)
    loader = RecordLoader("train.npy", batch_size=1024)
    for batch in loader: ...  # {"pulses": (1024, 128, 4), "energy": (1024,)}

The file is a plain .npy file with one record per sample, so np.load reads it too. Loading is fast
because no file is opened per sample, nothing is decoded, Python runs once per batch, and a record
is copied as one row of 8-byte words, independent of its fields. A worker would have to send each
batch, which costs more than building it if the samples are small. The main process therefore builds
the batch, with one `index_select` from the page cache into memory that is reused.

From a warm page cache, one mapped .npy file per field is equally fast, and its batches have no
gaps. Records are faster from cold storage, because all fields of a sample are on the same page, and
they have checksums.
"""

from __future__ import annotations

import math
import mmap
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import IterableDataset, get_worker_info

from keepfed.files import clear_errors, progress, require_free_space
from keepfed.limits import known, memory_free
from keepfed.loaders.contract import WorkerSlot
from keepfed.loaders.resume import IndexBatches
from keepfed.loaders.workers import LazyFile

Batch = dict[str, torch.Tensor]
_AT_ONCE = 8192  # records written at a time
_NUMBERS = "?bBhHiIlLqQefdFD"  # NumPy type codes that torch supports


class RecordLoader(IndexBatches, IterableDataset[Batch]):
    """Loader that serves every record once per epoch, shuffled over the whole file.

        for epoch in range(3):
            for batch in loader: ...  # each loop serves the next epoch

    A batch is valid until `buffers` more batches were requested. Then its memory is reused. To keep
    batches longer, copy them or pass `buffers=None`. `ThreadPrefetcher(loader, 1)` builds the next
    batch while the loop uses the current one, and each prefetched batch occupies one buffer.

    In a `DataLoader(records, batch_size=None, num_workers=2)` each worker builds every second batch
    in its own memory. The batches and their order stay the same. Loop over `records.follow(loader)`
    there, so that epochs advance and the position is counted.

    A batch is a dict with a tensor for each field. By default, the tensors are views of one buffer,
    with the other fields between their rows. With `contiguous=True`, each tensor has its own memory
    without gaps, as `pin_memory` and fast copies to a GPU need it.
    """

    def __init__(
        self,
        path: str | Path,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        slot: WorkerSlot | None = None,
        buffers: int | None = 2,
        contiguous: bool = False,
    ):
        """Open the file without reading records.

        Args:
            path: A file written by `write_records`.
            batch_size: Samples in a batch.
            shuffle: Whether each epoch has a new order. False keeps the order of the file.
            seed: Determines the order, together with the epoch.
            drop_last: Whether incomplete last batches are dropped.
            slot: Rank of these samples. None for the rank of the process.
            buffers: Number of batches whose memory is used in turn. None allocates every batch.
            contiguous: Whether each field of a batch has its own memory without gaps.

        Raises:
            OSError: If the file is missing, corrupted or of a different kind.
            ValueError: If a number is too small.
        """
        if buffers is not None and buffers < 1:
            raise ValueError(f"`buffers` must be at least 1, but is {buffers}.")
        self._records, self.buffers = LazyFile(Records, str(path)), buffers
        self.contiguous = contiguous
        samples = len(self._records.file.words)
        order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        super().__init__(samples, batch_size, slot=slot, **order)

    def close(self) -> None:
        """End open loops and unmap the file. The next loop maps the file again."""
        super().close()
        self._records.close()

    def __iter__(self) -> Iterator[Batch]:
        return self._follow_itself(self._read())

    def _read(self) -> Iterator[Batch]:
        # a worker sends each batch, so it must not reuse its memory
        count = self.buffers if get_worker_info() is None else None
        records = self._records.file
        make: Callable[[int], Any] = records.buffer
        read: Callable[[torch.Tensor, Any], Batch] = records.read
        if self.contiguous:
            make, read = records.field_buffers, records.read_fields
        ring = [make(self.batch_size) for _ in range(count or 0)]
        for number, batch in enumerate(self.deal()):
            buffer = ring[number % len(ring)] if ring else make(self.batch_size)
            yield read(torch.from_numpy(batch), buffer)


class Records:
    """The records of a file as rows of 8-byte words, mapped into memory by each process.

    Opening the file checks its size. The first read of a record in a process checks its checksum,
    which detects a changed word, a record in the wrong place, and a header of a different type. The
    checksum does not detect changes that cancel in the sum, or words that were swapped. If the file
    is truncated while it is mapped, the system ends the process.
    """

    def __init__(self, path: str):
        """Map the file without reading records.

        Raises:
            FileNotFoundError: If the file does not exist.
            OSError: If the size differs from the header, or `write_records` did not write the file.
        """
        table = _mapped(Path(path))
        names = table.dtype.names or ()
        if names[-1:] != ("checksum",) or table.ndim != 1 or not len(table):
            raise OSError(f"{path} contains no records. Create the file with `write_records`.")
        self.path, self.dtype, self.names = path, table.dtype, names[:-1]
        self.words = torch.from_numpy(table.view(np.int64).reshape(len(table), -1))
        self.seal = _seal(table.dtype)
        self._left, self._unchecked = (
            len(table),
            torch.ones(len(table), dtype=torch.bool, device="cpu"),
        )
        self._lock = Lock()

    def buffer(self, batch_size: int) -> torch.Tensor:
        """Return memory for a batch, int64 (batch_size, words per record)."""
        return torch.empty(batch_size, self.words.shape[1], dtype=torch.int64, device="cpu")

    def read(self, indices: torch.Tensor, buffer: torch.Tensor) -> Batch:
        """Return the records at `indices`, int64 (batch,), as one view of `buffer` per field.

        Raises:
            OSError: If a record is corrupted.
        """
        rows = torch.index_select(self.words, 0, indices, out=buffer[: len(indices)])
        if self._left:
            self._check(rows, indices)
        table = rows.numpy().view(self.dtype)[:, 0]
        return {name: torch.from_numpy(table[name]) for name in self.names}

    def field_buffers(self, batch_size: int) -> dict[str, torch.Tensor]:
        """Return memory for a batch, with one tensor of integers per field."""
        shapes = {name: (batch_size, part.shape[1]) for name, part in self._parts.items()}
        return {
            name: torch.empty(shape, dtype=self._parts[name].dtype, device="cpu")
            for name, shape in shapes.items()
        }

    def read_fields(self, indices: torch.Tensor, buffers: Mapping[str, torch.Tensor]) -> Batch:
        """Return the records at `indices`, int64 (batch,), with separate memory for each field.

        Raises:
            OSError: If a record is corrupted.
        """
        if self._left and self._unchecked[indices].any():
            self._check(torch.index_select(self.words, 0, indices), indices)
        batch = {}
        for name, part in self._parts.items():
            rows = torch.index_select(part, 0, indices, out=buffers[name][: len(indices)])
            field = self.dtype[name]
            shaped = rows.numpy().view(field.base).reshape(len(indices), *field.shape)
            batch[name] = torch.from_numpy(shaped)
        return batch

    @cached_property
    def _parts(self) -> dict[str, torch.Tensor]:
        """Each field of all records as a view of the widest integers that fit its place."""
        table, parts = self.words.numpy(), {}
        for name in self.names:
            field, offset = self.dtype.fields[name][:2]  # type: ignore[index]
            width = math.gcd(8, field.itemsize, offset)
            begin, end = offset // width, (offset + field.itemsize) // width
            parts[name] = torch.from_numpy(table.view(f"i{width}")[:, begin:end])
        return parts

    def _check(self, rows: torch.Tensor, indices: torch.Tensor) -> None:
        """Compare the rows with their checksums, unless this was done before."""
        if not self._unchecked[indices].any():
            return
        broken = indices[rows.sum(1) + indices != self.seal]
        if len(broken):
            raise OSError(
                f"Record {int(broken[0])} of {self.path} is corrupted. Copy the file again, or "
                "recreate it with `write_records`."
            )
        with self._lock:  # count a record once, even if two threads read it
            self._left -= int(self._unchecked[torch.unique(indices)].sum())
            self._unchecked[indices] = False


def _mapped(path: Path) -> NDArray[Any]:
    """Map the array of a .npy file for random reads.

    The map is copy-on-write. torch therefore accepts the array without a warning, and the file may
    be read-only.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Check the path of the .npy file.")
    try:
        array = np.lib.format.open_memmap(path, mode="c")
        if path.stat().st_size != array.offset + array.nbytes:
            raise ValueError("the file is longer than its header says")
    except OSError:
        raise
    except Exception as error:  # numpy raises many kinds of errors for a damaged header
        raise OSError(
            f"{path} is truncated or damaged ({error}). Copy the file again, or recreate it with "
            "`write_records`."
        ) from error
    _advise(array)
    return array


def _advise(array: np.memmap[Any, Any]) -> None:
    """Request large pages if the array fits into free memory, and no read-ahead otherwise.

    The processor finds each address of a map in a page table. With pages of 2 MB instead of 4 kB,
    the table is 512 times smaller and stays in the processor's cache. Large pages are read
    completely. This costs nothing if they stay in memory, but otherwise reads far too much.
    """
    fits = array.nbytes < (known(memory_free) or 0)
    advice = getattr(mmap, "MADV_HUGEPAGE" if fits else "MADV_RANDOM", None)
    if advice is not None and isinstance(array.base, mmap.mmap):
        with suppress(OSError):  # the system has no large pages
            array.base.madvise(advice)


def write_records(
    path: str | Path, fields: Mapping[str, ArrayLike], *, allow_nan: bool = False
) -> int:
    """Write one record per sample.

    The file is written under a temporary name and renamed when it is complete. Only one process may
    write the file at a time.

    Args:
        path: File to create or replace, usually with the suffix `.npy`.
        fields: Numeric arrays or tensors of equal length. They may be memory maps that are larger
            than memory.
        allow_nan: Whether fields may contain NaN.

    Returns:
        Size of the file in bytes.

    Raises:
        ValueError: If there are no samples, the lengths differ, or a field is not numeric, cannot
            be read or contains NaN.
        KeepfedError: If the disk has too little space.
    """
    path, arrays = Path(path), {name: _array(name, fields) for name in fields}
    dtype, length = _record_type(arrays), len(next(iter(arrays.values())))
    require_free_space(path.parent, length * dtype.itemsize, otherwise="or write them elsewhere")
    unfinished = path.with_name(f".{path.name}.unfinished")
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    try:
        with clear_errors(path), unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (length,)})
            for start in progress(range(0, length, _AT_ONCE), "records"):
                table = np.zeros(min(_AT_ONCE, length - start), dtype)
                for name, array in arrays.items():
                    table[name] = _rows(name, array, start, allow_nan)
                words = table.view(np.int64).reshape(len(table), -1)
                table["checksum"] = _seal(dtype) - start - np.arange(len(table)) - words.sum(1)
                file.write(words.data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path.stat().st_size


def _array(name: str, fields: Mapping[str, ArrayLike]) -> NDArray[Any]:
    """Return a field as an array."""
    try:
        return np.asanyarray(fields[name])
    except Exception as error:  # each library has its own errors, for example for damaged files
        change = "Look at its file, or write it again."
        if isinstance(fields[name], torch.Tensor):
            change = "Pass `tensor.detach().cpu().resolve_conj()`, and `.float()` for bfloat16."
        reason = str(error).rstrip(".")
        raise ValueError(f"The field {name!r} cannot be read: {reason}. {change}") from error


def _rows(name: str, array: NDArray[Any], start: int, allow_nan: bool) -> NDArray[Any]:
    """Return the next rows of a field, and reject NaN."""
    rows = array[start : start + _AT_ONCE]
    if not allow_nan and rows.dtype.kind in "fc" and (broken := np.isnan(rows)).any():
        place = start + int(np.argwhere(broken)[0, 0])
        raise ValueError(
            f"The field {name!r} is NaN in row {place}, as a missing value of a table becomes. "
            "Leave this row out, fill in a value, or pass `allow_nan=True`."
        )
    return rows


def _record_type(arrays: Mapping[str, NDArray[Any]]) -> np.dtype[np.void]:
    """Return the type of a record: its aligned fields, then a checksum."""
    if not arrays or "checksum" in arrays:
        raise ValueError("Give at least one field, and do not name any field 'checksum'.")
    for name, array in arrays.items():
        if not isinstance(name, str) or not name:
            raise ValueError(
                f"The name of a field is {name!r}. Give every field a name of letters."
            )
        if array.ndim == 0 or array.dtype.char not in _NUMBERS:
            raise ValueError(
                f"The field {name!r} has type {array.dtype} and shape {array.shape}. Give an "
                "array of numbers with one row per sample."
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        raise ValueError(f"The fields have {lengths} rows. Give all of them the same number.")
    types = [(n, array.dtype.newbyteorder("<"), array.shape[1:]) for n, array in arrays.items()]
    return np.dtype([*types, ("checksum", "<i8")], align=True)


def _seal(dtype: np.dtype[np.void]) -> int:
    """Return the sum of the words of record 0, including its checksum. For record i, it is i less.

    The sum depends on the type, so a changed header is detected as well.
    """
    return zlib.crc32(repr(np.lib.format.dtype_to_descr(dtype)).encode())
