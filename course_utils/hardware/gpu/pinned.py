"""Pin the batches of a loader as `DataLoader(pin_memory=True)` does, without its thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from keepfed.batches import map_collection, map_tensors


def pin_as_a_loader(pin: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> Any:
    """Return `batch` with `pin` applied to the tensors that a DataLoader would pin.

    It ignores dataclasses and other objects unless they have a method `pin_memory`.
    """
    if isinstance(batch, (Mapping, list, tuple)):
        return map_collection(partial(pin_as_a_loader, pin), batch)
    return map_tensors(pin, batch) if hasattr(batch, "pin_memory") else batch


@dataclass(frozen=True)
class PinnedBatches:
    """The batches of a loader in pinned memory. It can be iterated as often as the loader."""

    batches: Iterable[Any]
    pin: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        return map(self.pin, self.batches)

    def __len__(self) -> int:
        return len(cast(Sized, self.batches))
