"""Store samples of equal size in one file, and load a batch with one `index_select` per field.

    write_records("train.npy", {"pulses": pulses, "energy": energy})  # (n, 128, 4) and (n,)
    loader = RecordLoader("train.npy", batch_size=1024)
    for batch in loader: ...  # {"pulses": (1024, 128, 4), "energy": (1024,)}

The file is a plain .npy file with one record per sample, so np.load reads it too. Behind the array
it has one checksum per record. Loading is fast because no file is opened per sample, nothing is
decoded, and Python runs once per batch. A worker would have to send each batch, which costs more
than building it if the samples are small. The main process therefore builds the batch, from the
page cache.

From a warm page cache, one mapped .npy file per field is a little faster, because it counts no
position and has no checksums. Records are faster from cold storage, because all fields of a sample
are on the same page.
"""

from __future__ import annotations

import math
import mmap
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import IterableDataset

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

    `ThreadPrefetcher(loader, 1)` builds the next batch while the loop uses the current one.

    In a `DataLoader(records, batch_size=None, num_workers=2)` each worker builds every second
    batch. The batches and their order stay the same. Loop over `records.follow(loader)` there, so
    that epochs advance and the position is counted.

    A batch is a dict with a tensor for each field.
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
    ):
        """Open the file without reading records.

        Args:
            path: A file written by `write_records`.
            batch_size: Samples in a batch.
            shuffle: Whether each epoch has a new order. False keeps the order of the file.
            seed: Determines the order, together with the epoch.
            drop_last: Whether incomplete last batches are dropped.
            slot: Rank of these samples. None for the rank of the process.

        Raises:
            OSError: If the file is missing, corrupted or of a different kind.
            ValueError: If a number is too small.
        """
        self._records = LazyFile(Records, str(path))
        samples = len(self._records.file)
        order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        super().__init__(samples, batch_size, slot=slot, **order)

    def close(self) -> None:
        """End open loops and unmap the file. The next loop maps the file again."""
        super().close()
        self._records.close()

    def __iter__(self) -> Iterator[Batch]:
        return self._follow_itself(self._read())

    def _read(self) -> Iterator[Batch]:
        records = self._records.file
        return (records.read(torch.from_numpy(batch)) for batch in self.deal())


class Records:
    """The records of a file, mapped into memory by each process.

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
        self.path, table, sums = path, *_mapped(Path(path))
        self.columns = {name: torch.from_numpy(table[name]) for name in table.dtype.names or ()}
        self._words = torch.from_numpy(table.view(np.int64).reshape(len(table), -1))
        self._sums, self._seal = torch.from_numpy(sums), _seal(table.dtype)
        self._checked = torch.zeros(len(table), dtype=torch.bool, device="cpu")
        self._unchecked, self._lock = len(table), Lock()

    def __len__(self) -> int:
        return len(self._words)

    def read(self, indices: torch.Tensor) -> Batch:
        """Return the records at `indices`, int64 (batch,), with one tensor per field.

        Raises:
            OSError: If a record is corrupted.
        """
        if self._unchecked:
            self._check(indices)
        return {name: column.index_select(0, indices) for name, column in self.columns.items()}

    def _check(self, indices: torch.Tensor) -> None:
        """Compare records with their checksums, unless this was done before."""
        if self._checked.index_select(0, indices).all():
            return
        broken = indices[
            self._words.index_select(0, indices).sum(1) + indices + self._sums[indices]
            != self._seal
        ]
        if len(broken):
            raise OSError(
                f"Record {int(broken[0])} of {self.path} is corrupted. Copy the file again, or "
                "recreate it with `write_records`."
            )
        with self._lock:  # count a record once, even if two threads read it
            self._unchecked -= int((~self._checked[torch.unique(indices)]).sum())
            self._checked[indices] = True


def _mapped(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Map the records of a file for random reads, and the checksums behind them.

    The maps are copy-on-write. torch therefore accepts the arrays without a warning, and the file
    may be read-only.
    """
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. Check the path of the .npy file.")
    try:
        table = np.lib.format.open_memmap(path, mode="c")
        if table.dtype.names is None or table.ndim != 1 or not len(table):
            raise OSError(f"{path} contains no records. Create the file with `write_records`.")
        end = table.offset + table.nbytes
        if path.stat().st_size != end + 8 * len(table):
            raise ValueError("its size is not that of the records in its header and checksums")
        sums = np.memmap(path, np.int64, "c", end, len(table))
    except OSError:
        raise
    except Exception as error:  # numpy raises many kinds of errors for a damaged header
        raise OSError(
            f"{path} is truncated or damaged ({error}). Copy the file again, or recreate it with "
            "`write_records`."
        ) from error
    # if the file does not stay in memory, reading ahead of a random place is a waste
    is_large = table.nbytes > (known(memory_free) or 0)
    if is_large and hasattr(mmap, "MADV_RANDOM") and isinstance(table.base, mmap.mmap):
        table.base.madvise(mmap.MADV_RANDOM)
    return table, sums


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
    size = length * (dtype.itemsize + 8)
    require_free_space(path.parent, size, otherwise="or write them elsewhere")
    unfinished = path.with_name(f".{path.name}.unfinished")
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    sums = _seal(dtype) - np.arange(length)
    try:
        with clear_errors(path), unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (length,)})
            for start in progress(range(0, length, _AT_ONCE), "records"):
                table = np.zeros(min(_AT_ONCE, length - start), dtype)
                for name, array in arrays.items():
                    table[name] = _rows(name, array, start, allow_nan)
                words = table.view(np.int64).reshape(len(table), -1)
                sums[start : start + len(table)] -= words.sum(1)
                file.write(words.data)
            file.write(sums.data)
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
    """Return the type of a record: its aligned fields, padded to complete words."""
    if not arrays:
        raise ValueError("Give at least one field.")
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.char not in _NUMBERS:
            raise ValueError(
                f"The field {name!r} has type {array.dtype} and shape {array.shape}. Give an "
                "array of numbers with one row per sample."
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        raise ValueError(f"The fields have {lengths} rows. Give all of them the same number.")
    formats, places, end = [], [], 0
    for array in arrays.values():  # NumPy would not align complex numbers, but torch needs it
        formats.append((array.dtype.newbyteorder("<"), array.shape[1:]))
        places.append(_rounded_up(end, array.itemsize))
        end = places[-1] + array.itemsize * math.prod(array.shape[1:])
    itemsize = _rounded_up(end, max(8, *(array.itemsize for array in arrays.values())))
    return np.dtype(
        {"names": [*arrays], "formats": formats, "offsets": places, "itemsize": itemsize}
    )


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _seal(dtype: np.dtype[np.void]) -> int:
    """Return the sum of the words of record 0, including its checksum. For record i, it is i less.

    The sum depends on the type, so a changed header is detected as well.
    """
    return zlib.crc32(repr(np.lib.format.dtype_to_descr(dtype)).encode())
