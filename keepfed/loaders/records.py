"""Keep samples of one size in one file, and load a batch with one gather: the fast path.

    write_records("train.npy", {"pulses": pulses, "energy": energy})  # (n, 128, 4) and (n,)
    loader = RecordLoader("train.npy", batch_size=1024)
    for batch in loader: ...  # {"pulses": (1024, 128, 4), "energy": (1024,)}

The file is a plain .npy with one record per sample, so np.load reads it too. Why it is fast: no
file is opened per sample, nothing is decoded, Python runs once per batch and not once per sample,
and a record moves as one row of 8-byte words, whatever fields it has. A worker would have to send
each batch, and for small samples that costs more than to make it: so the process that trains makes
it, with one gather from the page cache into memory that is used again.

From the page cache, one mapped .npy for each field and torch.index_select are as fast, and their
batches have no gaps. Records win where storage is cold, as all fields of a sample lie on one page,
and they have checksums.
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import IterableDataset, get_worker_info
from tqdm import tqdm

from keepfed.files import require_free_space
from keepfed.limits import memory_free
from keepfed.loaders.contract import Place
from keepfed.loaders.resume import IndexBatches
from keepfed.loaders.workers import LazyFile

Batch = dict[str, torch.Tensor]
_AT_ONCE = 8192  # records that are put together and written at once
_NUMBERS = "?bBhHiIlLqQefdFD"  # the types of NumPy that torch has too


class RecordLoader(IndexBatches, IterableDataset[Batch]):
    """Give every record exactly once an epoch, in batches shuffled over the whole file.

        for epoch in range(3):
            for batch in loader: ...  # each loop serves the next epoch

    A batch stays as it is until `buffers` more were asked for; then its memory is used again. Who
    keeps batches longer copies them, or takes `buffers=None`. `ThreadPrefetcher(loader, 1)` makes
    the next batch while the loop works on one; each batch that it is ahead takes one of the
    buffers. Set `torch.set_num_threads(1)`, unless nothing else runs: beside busy programs a copy
    that is shared among threads waits for the slowest of them, and takes several times as long.

    In a `DataLoader(records, batch_size=None, num_workers=2)` each worker builds every second batch
    in its own memory. The batches and their order stay the same. Loop over `records.follow(loader)`
    there, so that epochs advance and the position is counted.

    A batch is a dict with a tensor for each field. These are views of one buffer, with the other
    fields between their rows; `contiguous()` gives one without gaps.
    """

    def __init__(
        self,
        path: str | Path,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        sort: bool = False,
        drop_last: bool = False,
        place: Place | None = None,
        buffers: int | None = 2,
    ):
        """Open the file, and read no records.

        Args:
            path: a file of write_records.
            batch_size: samples in a batch.
            shuffle: whether each epoch has a new order; False: the order in the file.
            seed: what the order depends on, besides the epoch.
            sort: whether a batch is read, and given, in the order of the file: kinder to a disk.
            drop_last: whether a last batch that is not full is dropped.
            place: rank that these samples are for; None: the rank of the process.
            buffers: batches whose memory is used in turn; None: every batch has its own.

        Raises:
            OSError: the file is missing, corrupted or of another kind.
            ValueError: a number is too small.
        """
        if buffers is not None and buffers < 1:
            raise ValueError(f"`buffers` must be at least 1, but is {buffers}.")
        self._records, self.sort, self.buffers = LazyFile(Records, str(path)), sort, buffers
        samples = len(self._records.file.words)
        order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        super().__init__(samples, batch_size, place=place, **order)

    def close(self) -> None:
        """End open loops and unmap the file; the next loop maps it again."""
        super().close()
        self._records.close()

    def __iter__(self) -> Iterator[Batch]:
        return self._follow_itself(self._read())

    def _read(self) -> Iterator[Batch]:
        # a worker sends its batch as it is, so it needs no buffer that is used again
        count = self.buffers if get_worker_info() is None else None
        records = self._records.file
        ring = [records.buffer(self.batch_size) for _ in range(count or 0)]
        for number, batch in enumerate(self.deal()):
            indices = torch.from_numpy(np.sort(batch) if self.sort else batch)
            buffer = ring[number % len(ring)] if ring else records.buffer(self.batch_size)
            yield records.read(indices, buffer)


class Records:
    """The records of a file as rows of words, mapped into memory by each process that reads them.

    What is found: when the file is opened, that its size is not what its header says; when a
    process first reads a record, by its checksum, a change within 8 bytes of it, a record in the
    wrong place, a header of another type. What is not: changes that cancel in the sum, and words of
    8 bytes that changed places. A file that is cut short while it is mapped ends the process.
    """

    def __init__(self, path: str):
        """Map the file, and read no records.

        Raises:
            FileNotFoundError: there is no such file.
            OSError: it is not as long as its header says, or no file of write_records.
        """
        table = _mapped(Path(path))
        names = table.dtype.names or ()
        if names[-1:] != ("checksum",) or table.ndim != 1 or not len(table):
            raise OSError(f"{path} is a .npy file without records; make one with write_records.")
        self.path, self.dtype, self.names = path, table.dtype, names[:-1]
        self.words = torch.from_numpy(table.view(np.int64).reshape(len(table), -1))
        self.seal = _seal(table.dtype)
        self._left, self._unchecked = (
            len(table),
            torch.ones(len(table), dtype=torch.bool, device="cpu"),
        )
        self._lock = Lock()

    def buffer(self, batch_size: int) -> torch.Tensor:
        """Return memory for a batch: int64 (batch_size, words of a record)."""
        return torch.empty(batch_size, self.words.shape[1], dtype=torch.int64, device="cpu")

    def read(self, indices: torch.Tensor, buffer: torch.Tensor) -> Batch:
        """Return the records at `indices`, int64 (batch,): a view of `buffer` for each field.

        Raises:
            OSError: a record is not as it was written.
        """
        rows = torch.index_select(self.words, 0, indices, out=buffer[: len(indices)])
        if self._left:
            self._check(rows, indices)
        table = rows.numpy().view(self.dtype)[:, 0]
        return {name: torch.from_numpy(table[name]) for name in self.names}

    def _check(self, rows: torch.Tensor, indices: torch.Tensor) -> None:
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
            self._left -= int(self._unchecked[torch.unique(indices)].sum())
            self._unchecked[indices] = False


def _mapped(path: Path) -> NDArray[Any]:
    """Map the array of a .npy file, to be read at random places.

    Pages that are written are copied first: so torch takes the array as it is, and the file can be
    one that this user may not write.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no {path}; name a .npy file that exists.")
    try:
        array = np.lib.format.open_memmap(path, mode="c")
        if path.stat().st_size != array.offset + array.nbytes:
            raise ValueError("it is longer than its header says")
    except OSError:
        raise
    except Exception as error:  # a header of other bytes makes numpy fail in many ways
        raise OSError(
            f"{path} is no whole .npy file ({error}); write it again, or copy it again from where "
            "it came."
        ) from error
    _advise(array)
    return array


def _advise(array: np.memmap[Any, Any]) -> None:
    """Ask for large pages where memory has room for all of it, else for no more than is read.

    Each place of a mapping is found through a table of its pages. Pages of 2 MB need a table 512
    times smaller than those of 4 kB, one that stays in the processor. They are read whole, which is
    no loss if they stay in memory, and 1,000 times too much if they do not.
    """
    fits = array.nbytes < memory_free()
    advice = getattr(mmap, "MADV_HUGEPAGE" if fits else "MADV_RANDOM", None)
    if advice is not None and isinstance(array.base, mmap.mmap):
        with suppress(OSError):  # a system without large pages
            array.base.madvise(advice)


def write_records(path: str | Path, fields: Mapping[str, ArrayLike]) -> int:
    """Write one record per sample, and return the bytes of the file.

    It is written beside its place and renamed when it is whole. One process may write at a time.

    Args:
        path: the file to make or replace, by custom `.npy`.
        fields: arrays of numbers with the same length; they may be mapped files, larger than the
            memory.

    Raises:
        ValueError: there is nothing to write, the lengths differ, or a field holds no numbers.
        KeepfedError: the disk has no room.
    """
    path, arrays = Path(path), {name: np.asanyarray(field) for name, field in fields.items()}
    dtype, length = _record_type(arrays), len(next(iter(arrays.values())))
    require_free_space(path.parent, length * dtype.itemsize, otherwise="or write them elsewhere")
    unfinished = path.with_name(f".{path.name}.unfinished")
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False}
    try:
        with unfinished.open("wb") as file:
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (length,)})
            for start in tqdm(range(0, length, _AT_ONCE), "records", disable=None):
                table = np.zeros(min(_AT_ONCE, length - start), dtype)
                for name, array in arrays.items():
                    table[name] = array[start : start + _AT_ONCE]
                words = table.view(np.int64).reshape(len(table), -1)
                table["checksum"] = _seal(dtype) - start - np.arange(len(table)) - words.sum(1)
                file.write(words.data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path.stat().st_size


def _record_type(arrays: Mapping[str, NDArray[Any]]) -> np.dtype[np.void]:
    """Return the type of a record: its fields, each at a multiple of its size, and a checksum."""
    if not arrays or "checksum" in arrays:
        raise ValueError("Records need a field, and none named 'checksum'; name the fields anew.")
    for name, array in arrays.items():
        if array.ndim == 0 or array.dtype.char not in _NUMBERS:
            raise ValueError(
                f"The field {name!r} is {array.dtype} with shape {array.shape}; give an array of "
                "numbers, one row per sample."
            )
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or not min(lengths.values()):
        raise ValueError(f"There are {lengths}; give every field the same number of rows, from 1.")
    types = [(n, array.dtype.newbyteorder("<"), array.shape[1:]) for n, array in arrays.items()]
    return np.dtype([*types, ("checksum", "<i8")], align=True)


def _seal(dtype: np.dtype[np.void]) -> int:
    """Return what the words of record 0 add up to, its checksum included; of record 1 one less.

    It depends on the type, so that a header which has changed is found too.
    """
    return zlib.crc32(repr(np.lib.format.dtype_to_descr(dtype)).encode())
