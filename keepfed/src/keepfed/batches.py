"""Find, copy and protect the tensors of a batch, even in nested containers.

One rule says how to look into a batch, and `map_leaves` follows it:

- Mappings, lists, tuples, named tuples and dataclasses are containers. They keep their type.
- An object that holds tensors and has a method `to` is a *movable*: a graph of PyTorch Geometric or
  DGL, `Instances` of detectron2, a TensorDict. A CUDA device calls its methods. Everything else
  replaces the tensors in a shallow copy.
- Everything else is a leaf.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

import torch

SMALL = 64 * 1024  # bytes; CUDA does not block the host for pageable copies up to this size
DEPTH = 4  # levels of objects that are searched for tensors
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_coo: ("_indices", "_values"),
    torch.jagged: ("values", "offsets"),
}
Function = Callable[[Any], Any]


class Handle:
    """Base class of tensors that are not torch's: leaves, although they have a method `to`."""

    def record_stream(self, stream: Any) -> None:
        """Keep the memory until `stream` has finished its work so far."""
        raise NotImplementedError


def map_leaves(function: Function, batch: Any, *, whole: Function | None = None) -> Any:
    """Return a batch of the same shape with `function` applied to every leaf, in order.

    `whole` is called with a movable instead of with its leaves.
    """
    down = partial(map_leaves, function, whole=whole)
    if is_movable(batch):
        if whole:
            return whole(batch)
        if not isinstance(batch, (dict, list, tuple)) and not is_dataclass(batch):
            return _map_inside(function, batch)
    if isinstance(batch, (Mapping, list, tuple)):
        return map_collection(down, batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        twin = copy.copy(batch)
        for field in fields(batch):
            # object.__setattr__ bypasses the check of a frozen dataclass.
            object.__setattr__(twin, field.name, down(getattr(batch, field.name)))
        return twin
    return function(batch)


def map_collection(function: Function, batch: Any) -> Any:
    """Return a mapping, list or tuple of the same type with `function` applied to its parts."""
    if isinstance(batch, Mapping):
        return _like_mapping(batch, {key: function(value) for key, value in batch.items()})
    parts = map(function, batch)
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)


def map_tensors(function: Function, batch: Any) -> Any:
    """Return a batch of the same shape with `function` applied to its tensors."""
    return map_leaves(
        lambda leaf: function(leaf) if isinstance(leaf, (torch.Tensor, Handle)) else leaf, batch
    )


def leaves(batch: Any) -> list[Any]:
    """Return every leaf of `batch`, in order."""
    every: list[Any] = []

    def note(leaf: Any) -> Any:
        every.append(leaf)
        return leaf  # a container such as torch.Size is rebuilt, and does not accept None

    map_leaves(note, batch)
    return every


def tensors(batch: Any) -> list[torch.Tensor]:
    """Return the tensors in `batch`, in order."""
    return [leaf for leaf in leaves(batch) if isinstance(leaf, torch.Tensor)]


def nbytes(batch: Any, *, whole: bool = False) -> int:
    """Return the bytes of a batch: of its tensors and arrays, and of its pickled objects.

    With `whole`, a tensor counts with its whole storage, once, because a worker sends all of it.
    """
    storages, total, objects = dict[int, int](), 0, list[Any]()
    for part in chain.from_iterable(map(_parts, leaves(batch))):
        if whole and isinstance(part, torch.Tensor):
            storages[part.untyped_storage().data_ptr()] = part.untyped_storage().nbytes()
        elif hasattr(part, "nbytes"):
            total += part.nbytes
        else:
            objects.append(part)
    with suppress(Exception):  # pickling objects of an unknown class may raise anything
        total += len(pickle.dumps(objects)) if objects else 0
    return total + sum(storages.values())


def move(batch: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Return `batch` with its tensors on `device`. A movable moves itself by its own `to`."""

    def move_leaf(leaf: Any) -> Any:
        is_tensor = isinstance(leaf, torch.Tensor)
        return leaf.to(device, non_blocking=non_blocking) if is_tensor else leaf

    def move_whole(movable: Any) -> Any:
        # PyTorch Geometric and Hugging Face modify the object, which belongs to the loader.
        twin = copy.copy(movable)
        try:
            return twin.to(device, non_blocking=non_blocking)
        except TypeError:  # its `to` takes only a device
            return twin.to(device)

    return map_leaves(move_leaf, batch, whole=move_whole)


def record_stream(batch: Any, stream: Any) -> None:
    """Keep the device memory of `batch` until `stream` has finished its work so far."""

    def record(leaf: Any) -> Any:
        for part in dense_parts(leaf) if isinstance(leaf, torch.Tensor) else [leaf]:
            if isinstance(part, Handle) or (isinstance(part, torch.Tensor) and part.is_cuda):
                part.record_stream(stream)
        return leaf

    def record_whole(movable: Any) -> Any:
        parts = [leaf for leaf in leaves(movable) if isinstance(leaf, (torch.Tensor, Handle))]
        if hasattr(movable, "record_stream") and not any(isinstance(x, Handle) for x in parts):
            movable.record_stream(stream)
        elif not parts:
            raise TypeError(
                f"CudaPrefetcher cannot protect the memory of a {type(movable).__name__}, because "
                "it finds no tensors in it. Give the class a method record_stream(stream), or "
                "return a dict."
            )
        else:
            map_leaves(record, parts)
        return movable

    map_leaves(record, batch, whole=record_whole)


def dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors of a sparse or jagged tensor, or a list with the tensor itself."""
    if tensor.layout == torch.strided and not tensor.is_nested:
        return [tensor]
    if tensor.layout not in _COMPRESSED:
        raise TypeError(
            "The batch contains a nested tensor with a strided layout, and its memory cannot be "
            "protected. Build the tensor with layout=torch.jagged."
        )
    parts = [getattr(tensor, name)() for name in _COMPRESSED[tensor.layout]]
    if tensor.layout == torch.jagged and (lengths := tensor.lengths()) is not None:  # type: ignore[attr-defined]
        parts.append(lengths)
    return parts


def _parts(leaf: Any) -> list[Any]:
    return dense_parts(leaf) if getattr(leaf, "layout", None) in _COMPRESSED else [leaf]


def is_movable(part: Any) -> bool:
    """Return whether `part` is an object with tensors and a method that moves them.

    A method `to` alone is not enough, because `to` of a physical quantity converts units.
    """
    if isinstance(part, (torch.Tensor, Handle, type)) or not callable(getattr(part, "to", None)):
        return False
    if hasattr(part, "pin_memory") or hasattr(part, "record_stream"):
        return True
    is_container = isinstance(part, (Mapping, list, tuple)) or is_dataclass(part)
    return not is_container and _holds_tensors(part)


def _like_mapping(batch: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """Return `values` as a mapping of the type of `batch`, with its other attributes."""
    if type(batch) is dict:
        return values
    try:
        twin: Any = copy.copy(batch)
        for key, value in values.items():
            twin[key] = value
    except Exception:  # Some mappings cannot be changed, or refuse these values.
        return values
    return twin


def _map_inside(function: Function, movable: Any) -> Any:
    """Return a shallow copy of `movable` with `function` applied to the leaves in it."""
    twin = copy.copy(movable)
    if hasattr(twin, "apply") and hasattr(twin, "stores"):  # PyTorch Geometric
        return twin.apply(function)
    for name, value in list(getattr(twin, "__dict__", {}).items()):
        if value is not movable and value is not twin:
            # The class may check assignments, and would refuse a tensor that is not from torch.
            twin.__dict__[name] = map_leaves(function, value)
    return twin


def _holds_tensors(part: Any, depth: int = DEPTH) -> bool:
    if isinstance(part, (torch.Tensor, Handle)):
        return True
    if depth == 0 or isinstance(part, (type, ModuleType)):
        return False
    inside = part if isinstance(part, (Mapping, list, tuple)) else getattr(part, "__dict__", {})
    values = inside.values() if isinstance(inside, Mapping) else inside
    return any(_holds_tensors(value, depth - 1) for value in values)


def has_gaps(tensor: torch.Tensor) -> bool:
    """Return whether the elements of `tensor` do not fill its memory without gaps.

    PyTorch copies such a tensor into pageable memory before it copies it to a device.
    """
    strided = tensor.layout == torch.strided
    return strided and torch.empty_like(tensor, device="meta").stride() != tensor.stride()
