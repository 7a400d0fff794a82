"""Traps of workers: what people write, and the same mended.

A demonstration is a function `NAME(mended) -> Numbers`, short enough to read; its two cases differ
in the one thing that matters. Some hang or die: `show` and `compare` run them in a process of their
own. More of the kind lie in keepfed/field_guide.
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

Numbers = dict[str, Any]  # what a demonstration counted or measured: name -> plain value

# Where a demonstration does not hang on the start method, it takes the one that is quick.
QUICK = "fork" if sys.platform == "linux" else "spawn"


class Trap(NamedTuple):
    """What is known of a demonstration without running it."""

    title: str
    needs: str = ""  # the start method that it is about; "": any


TRAPS = {
    "threads": Trap("Every worker computes with as many threads as there are cores"),
    "strings": Trap("Reading a list of strings copies it into every worker", needs="fork"),
    "one_handle": Trap("Workers read through one handle, and get rows of each other", needs="fork"),
    "unpicklable": Trap("What cannot be pickled never arrives"),
}


class Products(Dataset[float]):
    """Multiplies matrices for each sample, with whatever threads NumPy takes."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> float:
        matrix = np.full((256, 256), 1 / 256, np.float32)
        for _ in range(6):
            matrix = matrix @ matrix
        return float(matrix[0, 0])


def threads(mended: bool) -> Numbers:
    """Let as many workers as cores multiply matrices; the seconds of an epoch."""
    loader = DataLoader(
        Products(),
        num_workers=2,
        worker_init_fn=worker_init if mended else None,
        multiprocessing_context=QUICK,
    )
    start = time.perf_counter()
    list(loader)
    return {"seconds": round(time.perf_counter() - start, 2)}


class Names(Dataset[int]):
    """Looks at many names for each item."""

    def __init__(self, names: Sequence[str], items: int = 50):
        self.names, self.items = names, items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> int:
        part = len(self.names) // self.items
        return sum(len(self.names[i]) for i in range(index * part, (index + 1) * part))


def strings(mended: bool) -> Numbers:
    """Let two forked workers read 300,000 names; by how many MB of its own one grew."""
    names: Sequence[str] = [f"run_{i:09d}/event_{i:09d}.npz" for i in range(300_000)]
    if mended:
        names = PackedStrings(names)
    loader = DataLoader(
        Names(names), num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    batches = iter(loader)
    workers = batches._workers  # type: ignore[attr-defined]
    next(batches)  # they are there now
    at_start = max(unique_mb(worker.pid) for worker in workers)
    list(batches)
    at_end = max(unique_mb(worker.pid) for worker in workers)
    return {"MB by which a worker grew": round(at_end - at_start, 1)}


ROWS, ROW = 20_000, 8  # rows of a file, bytes in each: its number


class TrapRows(Dataset[bool]):
    """Reads rows that hold their own numbers, and tells whether it got another."""

    def __init__(self, path: Path, mended: bool):
        self.lazy = LazyFile(open, path, "rb", buffering=0)
        self.opened_before_the_fork = None if mended else path.open("rb", buffering=0)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> bool:
        file: Any = self.opened_before_the_fork or self.lazy.file
        file.seek(index * ROW)
        return int.from_bytes(file.read(ROW), "little") != index


def one_handle(mended: bool) -> Numbers:
    """Let two forked workers read all rows; how many came out wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.bin"
        np.arange(ROWS, dtype="<u8").tofile(path)
        dataset = TrapRows(path, mended)
        loader = DataLoader(dataset, 32, num_workers=2, multiprocessing_context="fork")
        wrong = sum(int(batch.sum()) for batch in loader)
        (dataset.opened_before_the_fork or dataset.lazy).close()
    return {f"wrong of {ROWS:,} rows": wrong}


class WithLock(Dataset[Any]):
    """Puts into its samples what cannot be pickled."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index, threading.Lock()


def unpicklable(mended: bool) -> Numbers:
    """Send a lock: it hangs for ever, or, with a timeout, ends with an error; how many came."""
    timeout = 2 if mended else 0
    loader = DataLoader(
        WithLock(), None, num_workers=1, timeout=timeout, multiprocessing_context=QUICK
    )
    return {"samples": len(list(loader))}
