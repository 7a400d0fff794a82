"""Walk through a batch: tensors in dicts, lists, tuples, named tuples and dataclasses, nested."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast


def map_leaves(function: Callable[[Any], Any], batch: Any) -> Any:
    """Return a batch of the same shape with `function` applied to all that is no container.

    A mapping of any kind becomes a dict. A dataclass is copied, not made anew: frozen ones and
    fields that its `__init__` does not take are no trouble.
    """
    if isinstance(batch, Mapping):
        return {key: map_leaves(function, value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*(map_leaves(function, value) for value in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map_leaves(function, value) for value in batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        twin = copy.copy(batch)
        for field in fields(batch):
            value = map_leaves(function, getattr(batch, field.name))
            object.__setattr__(twin, field.name, value)  # past the guard of a frozen one
        return twin
    return function(batch)


def leaves(batch: Any) -> list[Any]:
    """Return everything in `batch` that is no container, in order."""
    parts: Iterable[Any]
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, (list, tuple)):
        parts = batch
    elif is_dataclass(batch) and not isinstance(batch, type):
        parts = [getattr(batch, field.name) for field in fields(batch)]
    else:
        return [batch]
    return [leaf for part in parts for leaf in leaves(part)]


@dataclass(frozen=True)
class PinnedBatches:
    """The batches of a loader, each handed over pinned; as often iterable as the loader is."""

    batches: Iterable[Any]
    pin: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        """Pin one batch after the other."""
        return map(self.pin, self.batches)

    def __len__(self) -> int:
        """Count the batches, if the loader can."""
        return len(cast(Sized, self.batches))
