"""Common faults with workers, each in a subprocess, because some of them hang or crash.

`show("unpicklable", seconds=8)` returns the result of one fault, and `compare("threads")` also runs
its fix. A demonstration is a short function `NAME(fixed) -> Numbers`.
"""

import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from torch.utils.data import DataLoader, Dataset

from course_utils.teaching.notebook import Demo, run_demo
from keepfed.loaders.workers import PackedStrings, worker_init

Numbers = dict[str, Any]  # results of a demonstration by name

NEED_FORK = ("strings", "one_handle")
# fast start method for demonstrations that work with any
FAST_METHOD = "fork" if sys.platform == "linux" else "spawn"
_MARK = "numbers: "
_MEMORY_MB = 4000  # memory limit of a case
_PROGRAM = """
import json, warnings
from course_utils.stories.worker_traps import {name}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    numbers = json.dumps({name}(fixed={fixed}))
    print("\\n" + {mark!r} + numbers)  # a crash may leave half a line
"""


@dataclass(frozen=True)
class TrapRun:
    """The result of one case."""

    demo: Demo
    numbers: Numbers  # empty if the case did not finish

    def __str__(self) -> str:
        """Return the numbers, or a sentence about the end of the process."""
        found = ", ".join(f"{name} {value}" for name, value in self.numbers.items())
        return found or self.demo.sentence


def compare(name: str, *, seconds: float = 20) -> tuple[TrapRun, TrapRun]:
    """Run a demonstration without and with the fix, as `show` does."""
    return show(name, seconds=seconds), show(name, fixed=True, seconds=seconds)


def show(name: str, *, fixed: bool = False, seconds: float = 20) -> TrapRun:
    """Run one case of a demonstration in a subprocess, for at most `seconds`."""
    if name in NEED_FORK and "fork" not in multiprocessing.get_all_start_methods():
        ending = "Not shown, because it needs fork, which this system does not have"
        return TrapRun(Demo(ending, 0, 0.0, 0.0, ""), {})
    program = _PROGRAM.format(name=name, fixed=fixed, mark=_MARK)
    demo = run_demo(program, seconds=seconds, memory_mb=_MEMORY_MB)
    lines = demo.output.splitlines()
    said = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    return TrapRun(demo, json.loads(said[-1]) if said else {})


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

    def __init__(self, names: Sequence[str]):
        self.names = names

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        part = len(self.names) // len(self)
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
    workers = [psutil.Process(worker.pid) for worker in batches._workers]  # type: ignore[attr-defined]
    next(batches)  # both workers are running now
    at_start = max(worker.memory_full_info().uss for worker in workers)
    list(batches)
    at_end = max(worker.memory_full_info().uss for worker in workers)
    return {"MB by which a worker grew": round((at_end - at_start) / 1e6, 1)}


ROWS, ROW = 20_000, 8  # rows of a file, bytes per row


class TrapRows(Dataset[bool]):
    """Rows that contain their own index, from one handle. A sample is true if it is wrong."""

    def __init__(self, path: Path):
        self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> bool:
        self.file.seek(index * ROW)
        return int.from_bytes(self.file.read(ROW), "little") != index


def one_handle(fixed: bool) -> Numbers:
    """Count the wrong rows when two forked workers read a file, or one if it is fixed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.bin"
        np.arange(ROWS, dtype="<u8").tofile(path)
        dataset = TrapRows(path)
        workers = 1 if fixed else 2
        loader = DataLoader(dataset, 32, num_workers=workers, multiprocessing_context="fork")
        wrong = sum(int(batch.sum()) for batch in loader)
        dataset.file.close()
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
