"""A batch as a device sees it: tensors, however nested, and one number for what they hold.

Dicts, lists, tuples, named tuples and dataclasses are looked into; all else is a leaf.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, cast

import torch

SAMPLE = 1 << 14  # elements looked at per tensor; more would make torch start its threads
_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MIX = 0x9E3779B97F4A7C15 - (1 << 64)  # 2**64 / golden ratio, odd: no bit of the sum is lost
_MASK = (1 << 48) - 1  # as many bits as a float64 holds exactly


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


def map_tensors(function: Callable[[torch.Tensor], Any], batch: Any) -> Any:
    """Return a batch of the same shape with `function` applied to its tensors."""
    return map_leaves(
        lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, batch
    )


def leaves(batch: Any) -> list[Any]:
    """Return everything in `batch` that is no container, in order."""
    found: list[Any] = []

    def note(leaf: Any) -> Any:
        found.append(leaf)
        return leaf  # a container such as torch.Size is made anew, and takes no None

    map_leaves(note, batch)
    return found


def tensors(batch: Any) -> list[torch.Tensor]:
    """Return the tensors in `batch`, in order."""
    return [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]


def pin_as_a_loader(pin: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> Any:
    """Return `batch` with `pin` applied to what the thread of a loader pins.

    It does not look into dataclasses, and other strangers, unless they have a `pin_memory`.
    """
    if isinstance(batch, Mapping):
        return {key: pin_as_a_loader(pin, part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [pin_as_a_loader(pin, part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return map_tensors(pin, batch) if hasattr(batch, "pin_memory") else batch


def has_gaps(tensor: torch.Tensor) -> bool:
    """Tell whether `tensor` does not fill its memory: what is pinned of it is packed first.

    PyTorch packs it into pageable memory, in any order of its dimensions.
    """
    strided = tensor.layout == torch.strided
    return strided and torch.empty_like(tensor, device="meta").stride() != tensor.stride()


@dataclass(frozen=True)
class PinnedBatches:
    """The batches of a loader, each handed over pinned; as often iterable as the loader is."""

    batches: Iterable[Any]
    pin: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        return map(self.pin, self.batches)

    def __len__(self) -> int:
        return len(cast(Sized, self.batches))


class Loss:
    """The result of a step, which may still be running: a checksum of what the step read."""

    def item(self) -> float:
        """Block the host until the step is finished and return the checksum."""
        raise NotImplementedError

    def __float__(self) -> float:
        return self.item()

    def __repr__(self) -> str:
        return "<loss on the device: item() waits for it>"


def checksum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return one number in [0, 1) for the contents of `parts`, NaN if NaN is among them.

    A GPU and a CPU compute it to the same last bit, and it is cheap enough for every step:
    the bits of evenly spaced elements are weighted by position and added as integers, whose sums do
    not depend on their order.

    Returns:
        A float64 scalar on their device (on the CPU if there are none).
    """
    device = parts[0].device if parts else torch.device("cpu")
    total = torch.zeros((), dtype=torch.int64, device=device)
    spoilt = torch.zeros((), dtype=torch.bool, device=device)
    for tensor in parts:
        sample = _sample(tensor)
        spoilt = spoilt | sample.isnan().any()
        bits = sample.view(_INTEGER[sample.element_size()]).to(torch.int64)
        weights = torch.arange(len(bits), device=device) * 2 + 1
        total = total * 31 + (bits * weights).sum() + tensor.numel()
    share = (((total * _MIX) >> 16) & _MASK).to(torch.float64) / (_MASK + 1)
    return torch.where(spoilt, torch.nan, share)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    # An odd stride, so that of a table with 4 columns not only one is looked at.
    sample = flat[:: flat.numel() // SAMPLE | 1].contiguous()
    return torch.view_as_real(sample).reshape(-1) if sample.is_complex() else sample
