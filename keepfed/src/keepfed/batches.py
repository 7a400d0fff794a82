"""Find, copy and protect the tensors of a batch, even in nested containers.

One rule says how to look into a batch, and `map_leaves` follows it:

- Mappings, lists, tuples, named tuples and dataclasses are containers. They keep their type.
- An object that holds tensors and has a method `to` is a *movable*: a graph of PyTorch Geometric or
  DGL, `Instances` of detectron2, a TensorDict, a BatchEncoding. A CUDA device calls its methods.
  Everything else replaces the tensors in a shallow copy.
- Everything else is a leaf. A leaf that hides tensors cannot be copied to a device.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from itertools import chain
from types import FunctionType, ModuleType
from typing import Any, cast

import torch

SMALL = 64 * 1024  # bytes; CUDA does not block the host for pageable copies up to this size
IN_HOST_MEMORY = "The batch is in host memory. Copy it first: batch = gpu.upload(batch)."
ON_ANOTHER_GPU = (
    "The batch is on {}, but the step runs on {}. Upload the batch to the GPU of the step."
)
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

    `whole` is called with a movable instead of with its leaves, if the movable is not a container
    or if its `to` accepts `non_blocking`.
    """
    down = partial(map_leaves, function, whole=whole)
    if is_movable(batch):
        is_container = isinstance(batch, (Mapping, list, tuple)) or is_dataclass(batch)
        if whole and (not is_container or _takes_non_blocking(batch)):
            return whole(batch)
        if not isinstance(batch, dict) and (isinstance(batch, Mapping) or not is_container):
            return _map_inside(function, batch)
    if isinstance(batch, (Mapping, list, tuple)):
        return _map_collection(down, batch)
    if is_dataclass(batch) and not isinstance(batch, type):
        twin = copy.copy(batch)
        for field in fields(batch):
            # object.__setattr__ bypasses the check of a frozen dataclass.
            object.__setattr__(twin, field.name, down(getattr(batch, field.name)))
        return twin
    return function(batch)


def _map_collection(function: Function, batch: Any) -> Any:
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
        if isinstance(leaf, torch.Tensor):
            return leaf.to(device, non_blocking=non_blocking)
        return without_tensors(leaf)

    def move_whole(movable: Any) -> Any:
        # PyTorch Geometric and Hugging Face modify the object, which belongs to the loader.
        twin = copy.copy(movable)
        if _takes_non_blocking(twin):
            return twin.to(device, non_blocking=non_blocking)
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


def without_tensors(leaf: Any) -> Any:
    """Return `leaf`, or raise TypeError if it holds tensors, which a device would not find."""
    if not isinstance(leaf, Handle) and _holds_tensors(leaf):
        raise TypeError(
            f"The batch contains a {type(leaf).__name__} that holds tensors, but has no method to "
            "copy them. Return a dict, or give the class a method to(device, non_blocking=False)."
        )
    return leaf


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
    if isinstance(part, (torch.Tensor, Handle, type)) or type(part) in (dict, list, tuple, str):
        return False
    return callable(getattr(part, "to", None)) and (
        hasattr(part, "pin_memory") or hasattr(part, "record_stream") or _holds_tensors(part)
    )


def _takes_non_blocking(movable: Any) -> bool:
    try:
        inspect.signature(movable.to).bind("cuda", non_blocking=True)
    except TypeError:
        return False
    except ValueError:  # A method written in C has no signature.
        pass
    return True


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
    if depth == 0 or isinstance(part, (str, bytes, type, FunctionType, ModuleType)):
        return False
    inside = part.values() if isinstance(part, Mapping) else part
    inside = inside if isinstance(part, (Mapping, list, tuple, set, frozenset)) else ()
    state = getattr(part, "__dict__", {})
    slots = (getattr(part, name, None) for name in getattr(part, "__slots__", ()))
    return any(_holds_tensors(value, depth - 1) for value in (*inside, *state.values(), *slots))


def pin_as_a_loader(pin: Callable[[torch.Tensor], torch.Tensor], batch: Any) -> Any:
    """Return `batch` with `pin` applied to the tensors that a DataLoader would pin.

    It ignores dataclasses and other objects unless they have a method `pin_memory`.
    """
    if isinstance(batch, (Mapping, list, tuple)):
        return _map_collection(partial(pin_as_a_loader, pin), batch)
    return map_tensors(pin, batch) if hasattr(batch, "pin_memory") else batch


def has_gaps(tensor: torch.Tensor) -> bool:
    """Return whether the elements of `tensor` do not fill its memory without gaps.

    PyTorch copies such a tensor into pageable memory before it copies it to a device.
    """
    strided = tensor.layout == torch.strided
    return strided and torch.empty_like(tensor, device="meta").stride() != tensor.stride()


@dataclass(frozen=True)
class PinnedBatches:
    """The batches of a loader in pinned memory. It can be iterated as often as the loader."""

    batches: Iterable[Any]
    pin: Callable[[Any], Any]

    def __iter__(self) -> Iterator[Any]:
        return map(self.pin, self.batches)

    def __len__(self) -> int:
        return len(cast(Sized, self.batches))
