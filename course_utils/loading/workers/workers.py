"""What every worker needs and nobody remembers.

    loader = DataLoader(dataset, num_workers=4, worker_init_fn=worker_init)

A worker is another process: it computes beside its siblings, draws its own random numbers, opens
its own files, and sees no change of the dataset but through shared memory.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch.utils.data import get_worker_info

from course_utils.hardware.machine.starting import use_start_method
from course_utils.loading.workers.lazy_file import LazyFile

__all__ = ["LazyFile", "SharedEpoch", "use_start_method", "worker_init", "worker_rng"]

# Read when a library is loaded, or when it first computes. Libraries that a worker imports later
# are limited by these alone.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OPENCV_FOR_THREADS_NUM": "1",
}

# Libraries with pools of their own, for those that are loaded already. cv2: 0 is "no pool at all",
# while 1 still starts it.
_LIMITERS: dict[str, Callable[[Any], object]] = {
    "cv2": lambda cv2: cv2.setNumThreads(0),
    "numexpr": lambda numexpr: numexpr.set_num_threads(1),
    "numba": lambda numba: numba.set_num_threads(1),
    "pyarrow": lambda pyarrow: pyarrow.set_cpu_count(1),
}

_limits: list[threadpool_limits] = []  # kept: their handles on the libraries must live on
_rng: tuple[tuple[int, int], np.random.Generator] | None = None  # of (process, seed)


def worker_init(worker_id: int) -> None:
    """Prepare a worker: one thread for every pool, and a traceback if a library crashes.

    torch limits itself in workers, but not what numpy, OpenCV and others compute with: two workers
    on two cores are several times slower with two pools of two threads each.
    """
    os.environ.update(_one_thread())
    _limits.append(threadpool_limits(limits=1))
    for name, limit in _LIMITERS.items():
        if library := sys.modules.get(name):
            limit(library)
    if sys.__stderr__ is not None:
        faulthandler.disable()  # one that a fork inherited would stay behind torch's own handlers
        faulthandler.enable(sys.__stderr__)


def _one_thread() -> dict[str, str]:
    """Return the variables to set; numba refuses to see its own change once it has threads."""
    skipped = {"NUMBA_NUM_THREADS"} if "numba" in sys.modules else set()
    return {name: value for name, value in _ONE_THREAD.items() if name not in skipped}


def worker_rng() -> np.random.Generator:
    """Return the random generator to draw from in `__getitem__`, `__iter__` or `collate_fn`.

    Call it where you draw. A generator that the dataset keeps is copied into every worker, and all
    draw the same numbers.

    In a worker it is always the same generator. Its numbers differ between workers, between epochs
    (persistent workers or not) and between the ranks that torchrun starts, and repeat after the
    same `torch.manual_seed` in the main process. In the main process (num_workers=0) each call
    returns a new one, seeded by the next number of torch: so it obeys `torch.manual_seed` there.
    """
    global _rng
    if get_worker_info() is None:
        return _seeded(int(torch.randint(2**63 - 1, ())))
    key = os.getpid(), torch.initial_seed()
    if _rng is None or _rng[0] != key:
        _rng = key, _seeded(key[1])
    return _rng[1]


def _seeded(seed: int) -> np.random.Generator:
    rank = int(os.environ.get("RANK", 0))  # ranks are often given the same seed
    return np.random.default_rng([seed, rank])


class SharedEpoch:
    """The number of the epoch, in memory that all workers see.

        self.epoch = SharedEpoch()  # in __init__ of the dataset
        rng = np.random.default_rng([seed, self.epoch.value])  # in __iter__, in the worker
        dataset.epoch.value = 3  # in the training loop, before `for batch in loader`

    Persistent workers keep the copy of the dataset that they were started with, so a plain
    attribute that is changed later never reaches them. Change it between two loops over the loader:
    workers run ahead of a loop that has begun.
    """

    def __init__(self, epoch: int = 0):
        """Begin with `epoch`; do so before the workers start."""
        self._number = torch.tensor(epoch, dtype=torch.int64)
        self._number.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def value(self) -> int:
        """The epoch, the same in every process."""
        return int(self._number)

    @value.setter
    def value(self, epoch: int) -> None:
        self._number.fill_(epoch)

    def __repr__(self) -> str:
        """Show the number."""
        return f"SharedEpoch({self.value})"
