"""Count the operations of torch, and the bytes that they write."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts of the operations of a function, and of those that only create a view.

    `blocking` counts the copies to another device that block the program. `float_bits` is the
    width of the widest floating-point dtype that was written, except in single numbers.
    """

    calls = views = bytes_written = blocking = float_bits = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.lift_fresh.default:  # a tensor was created from Python numbers
            self.blocking += args[0].device.type != "cpu"
        given, how = [*_tensors((args, kwargs))], kwargs or {}
        if func is torch.ops.aten._to_copy.default:
            there = args[0].device
            self.blocking += how.get("device", there) != there and not how.get("non_blocking")
        elif len({tensor.device for tensor in given}) > 1:  # tensors of the host and of a device
            copies = func is torch.ops.aten.copy_.default
            waits = not copies or not (how.get("non_blocking") or True in args[2:])
            self.blocking += waits and any(t.device.type == "cpu" and t.ndim for t in given)
        known = {_storage(tensor) for tensor in given}
        result = func(*args, **how)
        written = [
            tensor
            for tensor in _tensors(result)
            if func._schema.is_mutable or _storage(tensor) not in known
        ]
        if written:
            self.calls += 1
            self.bytes_written += sum(tensor.nbytes for tensor in written)
            floats = (t for t in written if t.is_floating_point() and t.ndim)
            self.float_bits = max([self.float_bits, *(8 * t.element_size() for t in floats)])
        else:
            self.views += 1
        return result


def count_operations(function: Callable[..., Any], *given: Any) -> tuple[Operations, Any]:
    """Return the counts for `function(*given)`, and the result of the function."""
    with Operations() as counted:  # type: ignore[no-untyped-call]
        return counted, function(*given)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
