"""Count what torch is asked to do: the operations, and the bytes that they write."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The operations of a function, and those that only look at a tensor in another way.

    `blocking` are copies to another device for which the program waits.
    """

    calls = views = bytes_written = blocking = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.ops.aten.lift_fresh.default:  # a tensor was made of numbers of Python
            self.blocking += args[0].device.type != "cpu"
        given, how = [*_tensors((args, kwargs))], kwargs or {}
        if func is torch.ops.aten._to_copy.default:
            there = args[0].device
            self.blocking += how.get("device", there) != there and not how.get("non_blocking")
        elif len({tensor.device for tensor in given}) > 1:  # the host's beside those of a device
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
        else:
            self.views += 1
        return result


def count_operations(function: Callable[..., Any], *given: Any) -> tuple[Operations, Any]:
    """Return the count for `function(*given)`, and what the function returns."""
    with Operations() as counted:  # type: ignore[no-untyped-call]
        return counted, function(*given)


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
