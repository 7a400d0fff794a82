"""What a worker has besides its samples: random generators, epoch numbers, inherited files."""

from __future__ import annotations

import os
import pickle
import random
import stat
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from inspect import isfunction
from itertools import islice
from types import ModuleType
from typing import Any
from zlib import crc32

import numpy as np
import torch

MOST = 64  # objects of a dataset, and open files, that are inspected
_LOCKS = "multiprocessing.synchronize", "multiprocessing.managers", "filelock", "fcntl"
_MAIN_ONLY = "__init__", "set_epoch", "state_dict", "load_state_dict"  # not called in a worker
_STATES: dict[type, Any] = {  # methods that return the state of a random generator
    torch.Generator: lambda generator: generator.get_state().tolist(),
    np.random.Generator: lambda generator: generator.bit_generator.state,
    np.random.RandomState: lambda generator: generator.get_state(legacy=False),
    random.Random: random.Random.getstate,
}


def _objects_in(dataset: Any) -> Iterator[Any]:
    """Yield a dataset and the objects in it, in a fixed order."""
    waiting, known = [dataset], set[int]()
    while waiting and len(known) < MOST:
        part = waiting.pop(0)
        if id(part) in known or isinstance(part, type | torch.nn.Module):
            continue
        known.add(id(part))
        yield part
        if isinstance(part, list | tuple):
            waiting += [item for item in islice(part, MOST) if hasattr(item, "__dict__")]
        else:
            waiting += getattr(part, "__dict__", {}).values()


def generator_states(dataset: Any) -> tuple[int, ...]:
    """Return a hash of each random generator: of this process, and of the dataset."""
    states = [torch.get_rng_state().tolist(), np.random.get_state(legacy=False), random.getstate()]
    for part in _objects_in(dataset):
        kind = next((kind for kind in _STATES if isinstance(part, kind)), None)
        states += [] if kind is None else [_STATES[kind](part)]
    return tuple(crc32(pickle.dumps(state)) for state in states)


@cache
def _epoch_names(kinds: tuple[type, ...]) -> set[str]:
    """Return the names with "epoch" in the code of a dataset that makes samples."""
    parts = [item for kind in kinds for item in vars(kind).items()]
    used = [part for name, part in parts if name not in _MAIN_ONLY and isfunction(part)]
    return {name for part in used for name in part.__code__.co_names if "epoch" in name}


def epoch_numbers(dataset: Any) -> dict[str, int]:
    """Return the epoch numbers of a dataset that its samples depend on."""
    numbers = dict[str, int]()
    for name in _epoch_names(type(dataset).__mro__):
        with suppress(Exception):  # a property of the program's own may raise anything
            if type(number := getattr(dataset, name)) is int:
                numbers[name] = number
    return numbers


def _has_lock(dataset: Any) -> bool:
    """Return whether a lock between processes is in a dataset, or in the module of its class."""
    for part in _objects_in(dataset):
        module = vars(sys.modules.get(type(part).__module__, object))
        names = [
            value.__name__ if isinstance(value, ModuleType) else type(value).__module__
            for value in (part, *module.values())
        ]
        if any(name.startswith(_LOCKS) for name in names):
            return True
    return False


def _open_files() -> set[tuple[int, int, int]]:
    """Return number, device and inode of the latest regular files that this process only reads."""
    files = list[tuple[int, int, int]]()
    with suppress(OSError, ImportError):  # only Linux lists them
        from fcntl import F_GETFL, fcntl

        for number in sorted(map(int, os.listdir("/proc/self/fd")), reverse=True):
            with suppress(OSError):  # the folder itself is closed by now
                status, mode = os.fstat(number), fcntl(number, F_GETFL) & os.O_ACCMODE
                if stat.S_ISREG(status.st_mode) and mode == os.O_RDONLY:
                    files.append((number, status.st_dev, status.st_ino))
    return set(files[:MOST])


class InheritedFiles:
    """The files that a forked worker inherits, whose position it shares with other processes."""

    def __init__(self) -> None:
        """Begin in the main process, before it starts a worker."""
        self._files = _open_files()
        self._begun = dict[int, int]()  # positions when the fetch began
        self._left = dict[int, int]()  # positions after the last fetch of files that it reads

    def worker_started(self, dataset: Any) -> None:
        """Keep the files that this worker has, too, unless the dataset has a lock."""
        self._files &= _open_files()
        if self._files and _has_lock(dataset):
            self._files.clear()

    def _positions(self) -> dict[int, int]:
        positions = dict[int, int]()
        for number, *_ in self._files:
            with suppress(OSError):  # the program has closed it
                positions[number] = os.lseek(number, 0, os.SEEK_CUR)
        return positions

    def fetch_begins(self) -> str:
        """Return the path of a file that this worker reads, if another process moved it since."""
        self._begun = self._positions()
        moved = [n for n, place in self._begun.items() if self._left.get(n, place) != place]
        return os.readlink(f"/proc/self/fd/{moved[0]}") if moved else ""

    def fetch_ends(self) -> None:
        """Remember the positions of the files that this worker reads."""
        positions = self._positions()
        read = {
            n for n, place in positions.items() if n in self._left or place != self._begun.get(n)
        }
        self._left = {n: positions[n] for n in read}
