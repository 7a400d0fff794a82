"""Common faults with workers, each with its fix.

A demonstration is a short function `NAME(fixed) -> Numbers`. Its two cases differ only in the fix.
Some cases hang or crash, so `show` and `compare` run them in a subprocess. `keepfed why` knows more
faults.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import DataLoader, Dataset

from keepfed.loaders.workers import LazyFile, PackedStrings, unique_mb, worker_init

Numbers = dict[str, Any]  # results of a demonstration by name

# fast start method for demonstrations that work with any
FAST_METHOD = "fork" if sys.platform == "linux" else "spawn"


class Trap(NamedTuple):
    """The title and the start method of a demonstration."""

    title: str
    needs: str = ""  # required start method, or "" for any


TRAPS = {
    "threads": Trap("Every worker uses as many threads as there are cores"),
    "strings": Trap("Reading a list of strings copies it into every worker", needs="fork"),
    "one_handle": Trap("Workers share a file handle and read each other's rows", needs="fork"),
    "unpicklable": Trap("Objects that cannot be pickled never arrive"),
}


class Products(Dataset[float]):
    """Samples that multiply matrices, with NumPy's default number of threads."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        matrix = np.full((256, 256), 1 / 256, np.float32)
        for _ in range(6):
            matrix = matrix @ matrix
        return float(matrix[0, 0])


def threads(fixed: bool) -> Numbers:
    """Measure the seconds of an epoch in which two workers multiply matrices."""
    loader = DataLoader(
        Products(),
        num_workers=2,
        worker_init_fn=worker_init if fixed else None,
        multiprocessing_context=FAST_METHOD,
    )
    start = time.perf_counter()
    list(loader)
    return {"seconds": round(time.perf_counter() - start, 2)}


class Names(Dataset[int]):
    """Samples that read many names each."""

    def __init__(self, names: Sequence[str], items: int = 50):
        self.names, self.items = names, items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> int:
        part = len(self.names) // self.items
        return sum(len(self.names[i]) for i in range(index * part, (index + 1) * part))


def strings(fixed: bool) -> Numbers:
    """Measure by how many MB a forked worker grows while it reads 300,000 names."""
    names: Sequence[str] = [f"run_{i:09d}/event_{i:09d}.npz" for i in range(300_000)]
    if fixed:
        names = PackedStrings(names)
    loader = DataLoader(
        Names(names), num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    batches = iter(loader)
    workers = batches._workers  # type: ignore[attr-defined]
    next(batches)  # both workers are running now
    at_start = max(unique_mb(worker.pid) for worker in workers)
    list(batches)
    at_end = max(unique_mb(worker.pid) for worker in workers)
    return {"MB by which a worker grew": round(at_end - at_start, 1)}


ROWS, ROW = 20_000, 8  # rows of a file, bytes per row


class TrapRows(Dataset[bool]):
    """Rows that contain their own index. A sample is true if the index is wrong."""

    def __init__(self, path: Path, fixed: bool):
        self.lazy = LazyFile(open, path, "rb", buffering=0)
        self.opened_before_the_fork = None if fixed else path.open("rb", buffering=0)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> bool:
        file: Any = self.opened_before_the_fork or self.lazy.file
        file.seek(index * ROW)
        return int.from_bytes(file.read(ROW), "little") != index


def one_handle(fixed: bool) -> Numbers:
    """Count the wrong rows when two forked workers read a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.bin"
        np.arange(ROWS, dtype="<u8").tofile(path)
        dataset = TrapRows(path, fixed)
        loader = DataLoader(dataset, 32, num_workers=2, multiprocessing_context="fork")
        wrong = sum(int(batch.sum()) for batch in loader)
        (dataset.opened_before_the_fork or dataset.lazy).close()
    return {f"wrong of {ROWS:,} rows": wrong}


class WithLock(Dataset[Any]):
    """Samples that contain a lock, which cannot be pickled."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index, threading.Lock()


def unpicklable(fixed: bool) -> Numbers:
    """Count the samples that arrive. The loop hangs, or raises an error after a timeout."""
    timeout = 2 if fixed else 0
    loader = DataLoader(
        WithLock(), None, num_workers=1, timeout=timeout, multiprocessing_context=FAST_METHOD
    )
    return {"samples": len(list(loader))}
