"""Set up workers, and give them random numbers, files, strings and the epoch.

    loader = DataLoader(dataset, num_workers=4, worker_init_fn=worker_init)

A worker is a separate process. It shares the cores with other workers, needs its own random numbers
and open files, copies Python objects that it reads, and sees changes of the dataset only through
shared memory. A forked worker also inherits open connections of its parent.
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
from torch.utils.data import get_worker_info

from keepfed.checks import stamp
from keepfed.errors import required
from keepfed.forks import keep_inherited
from keepfed.limits import get_rank
from keepfed.reading import reading

F = TypeVar("F")

# Libraries read these when they are loaded. They are the only limit for libraries loaded later.
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

# Limits for loaded libraries that have their own thread pool. cv2 starts no pool with 0, but does
# start one with 1.
_LIMITERS: dict[str, Callable[[Any], object]] = {
    "cv2": lambda cv2: cv2.setNumThreads(0),
    "numexpr": lambda numexpr: numexpr.set_num_threads(1),
    "numba": lambda numba: numba.set_num_threads(1),
    "pyarrow": lambda pyarrow: pyarrow.set_cpu_count(1),
}

_limits: list[Any] = []  # stored, because the limits end when they are deleted
_rng: tuple[tuple[int, int], np.random.Generator] | None = None  # with its (process, seed)
_STEP = "Check that it is complete, and that no process writes to it"
_CODE = "utf-8", "surrogatepass"  # file names that are not valid UTF-8 contain surrogates


def worker_init(worker_id: int) -> None:
    """Limit every thread pool of a worker to one thread, and enable tracebacks for crashes.

    torch uses one thread in a worker, but it does not limit NumPy, OpenCV and other libraries. Two
    workers on two cores are several times slower if each has a pool of two threads.
    """
    os.environ.update(_ONE_THREAD)
    if "numba" not in sys.modules:  # numba raises an error if this changes after it has threads
        os.environ["NUMBA_NUM_THREADS"] = "1"
    _limits.append(required("threadpoolctl").threadpool_limits(limits=1))
    for name, limit in _LIMITERS.items():
        if library := sys.modules.get(name):
            limit(library)
    if sys.__stderr__ is not None:
        faulthandler.disable()  # an inherited handler would run after torch's own handlers
        faulthandler.enable(sys.__stderr__)


def worker_rng() -> np.random.Generator:
    """Return the random generator of this worker, for `__getitem__`, `__iter__` or `collate_fn`.

    Call this function each time you draw. A generator that is an attribute of the dataset is copied
    to every worker, and all workers then draw the same numbers.

    A worker always gets the same generator. Its numbers differ between workers, epochs and ranks of
    torchrun, and repeat after the same `torch.manual_seed` in the main process. With num_workers=0,
    each call returns a new generator that is seeded from torch.
    """
    global _rng
    # all ranks often use the same seed
    if get_worker_info() is None:
        seed = int(torch.randint(2**63 - 1, (), device="cpu"))
        return np.random.default_rng([seed, get_rank()[0]])
    key = os.getpid(), torch.initial_seed()
    if _rng is None or _rng[0] != key:
        _rng = key, np.random.default_rng([key[1], get_rank()[0]])
    return _rng[1]


class SharedEpoch:
    """The number of the epoch, in memory that all workers share.

        self.epoch = SharedEpoch()  # in __init__ of the dataset
        rng = np.random.default_rng([seed, self.epoch.value])  # in __iter__, in the worker
        dataset.epoch.value = 3  # in the training loop, before `for batch in loader`

    Persistent workers keep the copy of the dataset that they started with, so later changes of a
    plain attribute do not reach them. Set the epoch between two loops over the loader, because
    workers run ahead of a loop that has begun.
    """

    def __init__(self) -> None:
        """Begin with epoch 0. Create this object before the workers start."""
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
    """A file that each process opens for itself, at the first access.

        self.events = LazyFile(h5py.File, path, "r")  # in __init__: opens nothing
        pulses = self.events.file["pulses"][first:last]  # in __getitem__

    With every start method, it is sent to workers without the open file. All threads of a process
    share the file.
    """

    _file: F | None = None
    _opened_by = -1

    def __init__(self, opener: Callable[..., F], /, *args: Any, **kwargs: Any):
        """Store an opener that can be imported, such as h5py.File or np.load, and its arguments.

        Raises:
            TypeError: If `opener` is an open file, or a function that a worker cannot import.
        """
        name = getattr(opener, "__qualname__", type(opener).__qualname__)
        if not callable(opener) or "<" in name:  # "<lambda>", or "function.<locals>.opener"
            raise TypeError(
                f"A worker cannot import {name}. Give LazyFile a function that is defined at the "
                "top level of a module, and its arguments, such as LazyFile(open, path, 'rb')."
            )
        self.opener, self.args, self.kwargs = opener, args, kwargs

    @property
    def file(self) -> F:
        """The file, opened by this process. A forked worker opens its own."""
        if self._file is None or self._opened_by != os.getpid():
            self.close()
            self._file, self._opened_by = self._open(), os.getpid()
        return self._file

    def _open(self) -> F:
        path = next((arg for arg in self.args if isinstance(arg, str | os.PathLike)), "")
        with reading(path or repr(self.opener), step=_STEP):
            if os.path.exists(path):  # it may be a URL
                stamp(path)
            return self.opener(*self.args, **self.kwargs)

    def close(self) -> None:
        """Close the file in this process. The next access opens it again."""
        file, opened_by = self._file, self._opened_by
        self._file, self._opened_by = None, -1
        if file is None:
            return
        if opened_by != os.getpid():
            keep_inherited(file)
        elif close := getattr(file, "close", None):  # a memmap has no close method
            close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling or copying, without the open file."""
        return {"opener": self.opener, "args": self.args, "kwargs": self.kwargs}

    def __del__(self) -> None:
        if os and not sys.is_finalizing():  # Python closes files itself when it exits
            self.close()


class PackedStrings(Sequence[str]):
    """An immutable sequence of strings, stored in two arrays.

        paths = PackedStrings(paths)  # paths[i], paths[10:20], len(paths) as before

    Reading a string of a list changes its reference count, which in a forked worker copies all
    memory pages of the list over time. A slice is a new `PackedStrings` object.
    """

    def __init__(self, strings: Iterable[str]):
        """Pack the strings. They may contain any characters.

        Raises:
            TypeError: If an item is not a string, or if `strings` is a single string.
        """
        if isinstance(strings, str):
            raise TypeError("`strings` is a single string. Give a list of strings.")
        packed, places = bytearray(), array("q", [0])
        for index, string in enumerate(strings):
            if not isinstance(string, str):
                kind = type(string).__name__
                raise TypeError(f"Item {index} is of type {kind}. Convert it with str(...).")
            packed += string.encode(*_CODE)
            places.append(len(packed))
        self._bytes: NDArray[np.uint8] = np.frombuffer(bytes(packed), np.uint8)
        # uint32 needs half the memory, and is enough for 4 GB of text
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
