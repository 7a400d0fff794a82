"""What a worker has besides its samples: random generators, epoch numbers, files."""

from __future__ import annotations

import io
import os
import pickle
import random
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

MOST = 64  # objects of a dataset that are inspected
_LOCKS = "multiprocessing.synchronize", "multiprocessing.managers", "filelock", "fcntl"
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
        if isinstance(part, list | tuple | dict):
            items = part.values() if isinstance(part, dict) else part
            waiting += [item for item in islice(items, MOST) if hasattr(item, "__dict__")]
        else:
            waiting += getattr(part, "__dict__", {}).values()


def generator_states(dataset: Any) -> tuple[int, ...]:
    """Return a hash of each random generator: of this process, and of the dataset."""
    states = [torch.get_rng_state().tolist(), np.random.get_state(legacy=False), random.getstate()]
    for part in _objects_in(dataset):
        states += [state_of(part) for kind, state_of in _STATES.items() if isinstance(part, kind)]
    return tuple(crc32(pickle.dumps(state)) for state in states)


@cache
def _epoch_names(kinds: tuple[type, ...]) -> set[str]:
    """Return the names with "epoch" in the methods of a dataset that make samples."""
    names, waiting = set[str](), {"__getitem__", "__getitems__", "__iter__"}
    while waiting:
        name = waiting.pop()
        names.add(name)
        parts = (vars(kind).get(name) for kind in kinds)
        methods = (getattr(part, "fget", part) for part in parts)
        used = (method.__code__.co_names for method in methods if isfunction(method))
        waiting |= {other for others in used for other in others} - names
    return {name for name in names if "epoch" in name}


def epoch_numbers(dataset: Any) -> dict[str, int]:
    """Return the epoch numbers of a dataset that its samples depend on."""
    numbers = dict[str, int]()
    for name in _epoch_names(type(dataset).__mro__):
        with suppress(Exception):  # a property of the program's own may raise anything
            if type(number := getattr(dataset, name)) is int:
                numbers[name] = number
    return numbers


class OpenFiles:
    """The files of a dataset that are open in a worker when it starts.

    A forked worker shares the position in such a file with the process that opened it.
    """

    def __init__(self, dataset: Any):
        """Find the files that are only read, unless the program has a lock between processes."""
        parts = [*_objects_in(dataset)]
        for kind in {type(part) for part in parts}:
            parts += [*vars(kind).values(), *vars(sys.modules.get(kind.__module__, kind)).values()]
        files = [part for part in parts if isinstance(part, io.IOBase) and not part.closed]
        files = [file for file in files if file.readable() and not file.writable()]
        self._files = [] if any(map(_is_lock, parts)) else files
        self._begun, self._left = dict[Any, int](), dict[Any, int]()  # positions in the files

    def _positions(self) -> dict[Any, int]:
        positions = dict[Any, int]()
        for file in self._files:
            with suppress(OSError, ValueError):  # no regular file, or closed by now
                positions[file] = os.lseek(file.fileno(), 0, os.SEEK_CUR)
        return positions

    def fetch_begins(self) -> str:
        """Return the name of a file that this worker reads, if another process moved it since."""
        self._begun = self._positions()
        moved = (file for file, at in self._begun.items() if self._left.get(file, at) != at)
        return next((str(getattr(file, "name", "a file")) for file in moved), "")

    def fetch_ends(self) -> None:
        """Remember the positions of the files that this worker reads."""
        after, begun = self._positions(), self._begun
        self._left = {f: at for f, at in after.items() if f in self._left or at != begun.get(f)}


def _is_lock(part: Any) -> bool:
    """Return whether a part of a program is a lock between processes, or a module of locks."""
    name = part.__name__ if isinstance(part, ModuleType) else type(part).__module__
    return str(name).startswith(_LOCKS)
