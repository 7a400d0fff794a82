"""What every worker needs and nobody remembers.

    loader = DataLoader(dataset, num_workers=4, worker_init_fn=worker_init)

A worker is another process: it computes beside its siblings, draws its own random numbers, opens
its own files, copies what it only looks at, sees no change of the dataset but through shared
memory, and, if it was forked, has connections in its hands that are its parent's.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch.utils.data import get_worker_info

from keepfed.forks import keep_inherited

F = TypeVar("F")

# Read when a library is loaded, or when it first computes. Libraries that a worker imports later
# are limited by these alone.
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
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
_CODE = "utf-8", "surrogatepass"  # surrogates stand in file names that are not valid UTF-8


def worker_init(worker_id: int) -> None:
    """Prepare a worker: one thread for every pool, and a traceback if a library crashes.

    torch limits itself in workers, but not what numpy, OpenCV and others compute with: two workers
    on two cores are several times slower with two pools of two threads each.
    """
    os.environ.update(_ONE_THREAD)
    if "numba" not in sys.modules:  # it refuses to see a change once it has threads
        os.environ["NUMBA_NUM_THREADS"] = "1"
    _limits.append(threadpool_limits(limits=1))
    for name, limit in _LIMITERS.items():
        if library := sys.modules.get(name):
            limit(library)
    if sys.__stderr__ is not None:
        faulthandler.disable()  # one that a fork inherited would stay behind torch's own handlers
        faulthandler.enable(sys.__stderr__)


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
        return _seeded(int(torch.randint(2**63 - 1, (), device="cpu")))
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

    def __init__(self) -> None:
        """Begin with epoch 0; do so before the workers start."""
        self._number = torch.tensor(0, device="cpu")
        self._number.share_memory_()  # type: ignore[no-untyped-call]

    @property
    def value(self) -> int:
        """The epoch, the same in every process."""
        return int(self._number)

    @value.setter
    def value(self, epoch: int) -> None:
        self._number.fill_(epoch)


class LazyFile(Generic[F]):
    """A file that each process opens for itself, when it first asks for it.

        self.events = LazyFile(h5py.File, path, "r")  # in __init__: opens nothing
        pulses = self.events.file["pulses"][first:last]  # in __getitem__

    It goes to a worker without the open file, whatever the start method. Threads of a process share
    one.
    """

    _file: F | None = None
    _opened_by = -1

    def __init__(self, opener: Callable[..., F], /, *args: Any, **kwargs: Any):
        """Remember how to open the file.

        Args:
            opener: a function or class that can be imported, such as open, h5py.File,
                sqlite3.connect, np.load.
            *args: what to call it with.
            **kwargs: the same, by name.

        Raises:
            TypeError: the opener is an open file, or a function that no worker could import.
        """
        name = getattr(opener, "__qualname__", type(opener).__qualname__)
        if not callable(opener) or "<" in name:  # "<lambda>", or "function.<locals>.opener"
            raise TypeError(
                f"A worker cannot get {name}: give LazyFile a function that is defined with def in "
                "a module, outside of any other function, and its arguments, such as "
                "LazyFile(open, path, 'rb')."
            )
        self.opener, self.args, self.kwargs = opener, args, kwargs

    @property
    def file(self) -> F:
        """The file, opened by this very process: a forked worker opens its own."""
        if self._file is None or self._opened_by != os.getpid():
            self.close()
            self._file, self._opened_by = self.opener(*self.args, **self.kwargs), os.getpid()
        return self._file

    def close(self) -> None:
        """Close the file in this process; the next use opens it again."""
        file, opened_by = self._file, self._opened_by
        self._file, self._opened_by = None, -1
        if file is None:
            return
        if opened_by != os.getpid():
            keep_inherited(file)
        elif close := getattr(file, "close", None):  # a memmap has none: it ends with its last view
            close()

    def __getstate__(self) -> dict[str, Any]:
        """Go to another process, or into a copy, without the open file."""
        return {"opener": self.opener, "args": self.args, "kwargs": self.kwargs}

    def __del__(self) -> None:
        if os:  # Python takes modules away when it ends, and then closes files itself
            self.close()


class PackedStrings(Sequence[str]):
    """Strings in one buffer of bytes, with the places where each begins and ends.

        paths = PackedStrings(paths)  # paths[i], paths[10:20], len(paths) as before

    Each str of a list is an object with a reference count, and to look at it writes that count: the
    pages of a forked worker are copied one by one. Here are two arrays, however many strings.
    It cannot be changed. A slice is packed anew.
    """

    def __init__(self, strings: Iterable[str]):
        """Pack the strings; each comes out as it went in, whatever characters it has.

        Raises:
            TypeError: one of them is no str, or all of it is one str.
        """
        if isinstance(strings, str):
            raise TypeError("PackedStrings packs many strings; give it a list of them.")
        packed, places = bytearray(), array("q", [0])
        for index, string in enumerate(strings):
            if not isinstance(string, str):
                kind = type(string).__name__
                raise TypeError(f"Item {index} is {kind}; make it a str, for instance by str(...).")
            packed += string.encode(*_CODE)
            places.append(len(packed))
        self._bytes: NDArray[np.uint8] = np.frombuffer(bytes(packed), np.uint8)
        # half as much to keep and to send, wherever 4 GB are enough
        kind = np.uint32 if len(packed) < 2**32 else np.int64
        self._places: NDArray[np.integer] = np.array(places, kind)

    def __len__(self) -> int:
        return len(self._places) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return PackedStrings(self[place] for place in range(len(self))[index])
        place = range(len(self))[index]
        begin, end = self._places[place : place + 2]
        return self._bytes[begin:end].tobytes().decode(*_CODE)
