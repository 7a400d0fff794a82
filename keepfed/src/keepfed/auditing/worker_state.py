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
from pathlib import Path
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
    names = set[str]()
    for kind in kinds:
        for name, part in vars(kind).items():
            if isfunction(part) and name not in _MAIN_ONLY:
                names.update(name for name in part.__code__.co_names if "epoch" in name)
    return names


def epoch_numbers(dataset: Any) -> dict[str, int]:
    """Return the epoch numbers of a dataset that its samples depend on."""
    numbers = {name: getattr(dataset, name, None) for name in _epoch_names(type(dataset).__mro__)}
    return {name: number for name, number in numbers.items() if type(number) is int}


def _has_lock(dataset: Any) -> bool:
    """Return whether a lock between processes is in a dataset, or in the module of its class."""
    for part in _objects_in(dataset):
        module = sys.modules.get(type(part).__module__)
        for value in (part, *vars(module).values()) if module else (part,):
            name = value.__name__ if isinstance(value, ModuleType) else type(value).__module__
            if name.startswith(_LOCKS):
                return True
    return False


def open_files() -> dict[int, tuple[int, int]]:
    """Return the regular files that this process only reads, with their device and number."""
    files = dict[int, tuple[int, int]]()
    with suppress(OSError):  # only Linux lists them
        for name in islice(os.listdir("/proc/self/fdinfo"), MOST):
            with suppress(OSError):  # the folder itself is closed by now
                status, info = os.fstat(int(name)), Path("/proc/self/fdinfo", name).read_text()
                mode = int(info.partition("flags:")[2].split()[0], 8) & os.O_ACCMODE
                if stat.S_ISREG(status.st_mode) and mode == os.O_RDONLY:
                    files[int(name)] = status.st_dev, status.st_ino
    return files


class InheritedFiles:
    """The files that a forked worker inherited, whose position it shares with other processes."""

    def __init__(self, files: dict[int, tuple[int, int]], dataset: Any):
        """Begin in a worker. `files` are those that its parent had open."""
        shared = files.items() & open_files().items()
        self._files = [] if not shared or _has_lock(dataset) else [number for number, _ in shared]
        self._begun, self._left = dict[int, int](), dict[int, int]()
        self._read = set[int]()  # files that this worker reads

    def _positions(self) -> dict[int, int]:
        positions = dict[int, int]()
        for number in self._files:
            with suppress(OSError):  # the program has closed it
                positions[number] = os.lseek(number, 0, os.SEEK_CUR)
        return positions

    def fetch_begins(self) -> str:
        """Return the path of a file that this worker reads, if another process moved it since."""
        self._begun = self._positions()
        moved = [n for n in self._read & self._begun.keys() if self._begun[n] != self._left.get(n)]
        return os.readlink(f"/proc/self/fd/{moved[0]}") if moved else ""

    def fetch_ends(self) -> None:
        """Remember the positions, and which files this worker has read."""
        self._left = self._positions()
        self._read |= {n for n, place in self._left.items() if place != self._begun.get(n)}
