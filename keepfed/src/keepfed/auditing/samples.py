"""Describe samples and batches in the process that builds them: identity, label, damage."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from keepfed.batches import leaves

HASHED = 512  # elements of an array that go into its fingerprint
MAX_LEAVES = 16  # values of a sample that go into its fingerprint
MAX_OBJECTS = 64  # objects of a dataset that are searched for generators
LABELS = "label", "labels", "target", "targets", "y", "class"


def fingerprint(sample: Any) -> int:
    """Return 64 bits that identify a sample by its content, from at most `HASHED` elements each."""
    digest = blake2b(digest_size=8)
    for leaf in leaves(sample)[:MAX_LEAVES]:
        array = as_array(leaf)
        if array is None:
            digest.update(repr(leaf)[:HASHED].encode())
            continue
        digest.update(f"{array.dtype}{array.shape}".encode())
        flat = array.reshape(-1)
        digest.update(flat[:: max(1, -(-flat.size // HASHED))].tobytes())
    return int.from_bytes(digest.digest(), "little")


def as_array(leaf: Any) -> NDArray[Any] | None:
    """Return a tensor or array as a NumPy array of the same bytes, or None for other values."""
    if isinstance(leaf, np.ndarray):
        return None if leaf.dtype.hasobject else leaf
    if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and not leaf.is_nested:
        if leaf.layout != torch.strided:
            return None
        plain = leaf.detach()
        if plain.dtype == torch.bfloat16:
            plain = plain.view(torch.int16)
        return np.asarray(plain.resolve_conj().resolve_neg().numpy())
    return None


def label_of(sample: Any) -> int | str | None:
    """Return the class label of a sample: a named value, or the whole number at its end."""
    found: Any = None
    if isinstance(sample, Mapping):
        found = next((sample[name] for name in LABELS if name in sample), None)
    elif isinstance(sample, Sequence) and not isinstance(sample, str) and len(sample) > 1:
        found = sample[-1]
    array = as_array(found)
    if array is not None:
        whole = array.size == 1 and array.dtype.kind in "iub"
        return int(array.reshape(-1)[0]) if whole else None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


class Damage(NamedTuple):
    """Numbers of one array of a batch that are not finite."""

    place: int  # of the array in the batch
    nans: int
    bad: int  # NaN, or infinite if no number is NaN
    size: int  # of the array, in numbers


def damage(batch: Any) -> list[Damage]:
    """Return the arrays of a batch that contain NaN or infinite numbers."""
    found = []
    for place, array in enumerate(map(as_array, leaves(batch))):
        if array is None or array.dtype.kind != "f" or not array.size:
            continue
        if not np.isfinite(array.sum()):  # one pass; an overflow is inspected in detail
            nans = int(np.isnan(array).sum())
            if bad := nans or int(np.isinf(array).sum()):
                found.append(Damage(place, nans, bad, array.size))
    return found


def form(batch: Any) -> str:
    """Return the different dtypes of a batch as text."""
    arrays = map(as_array, leaves(batch))
    return ", ".join(dict.fromkeys(str(array.dtype) for array in arrays if array is not None))


def generator_states(dataset: Any) -> tuple[int, ...]:
    """Return a hash of each random generator that a dataset owns, in a fixed order."""
    states, waiting, seen = list[bytes](), list[Any]([dataset]), 0
    known = set[int]()
    while waiting and seen < MAX_OBJECTS:
        one, seen = waiting.pop(0), seen + 1
        if id(one) in known:
            continue
        known.add(id(one))
        if isinstance(one, torch.Generator):
            states.append(one.get_state().numpy().tobytes())
        elif isinstance(one, np.random.Generator):
            states.append(repr(one.bit_generator.state).encode())
        elif isinstance(one, np.random.RandomState):
            states.append(repr(one.get_state(legacy=False)).encode())
        elif isinstance(one, random.Random):
            states.append(repr(one.getstate()).encode())
        elif isinstance(one, list | tuple):
            waiting += [part for part in islice(one, MAX_OBJECTS) if hasattr(part, "__dict__")]
        elif not isinstance(one, type | torch.nn.Module):
            waiting += list(getattr(one, "__dict__", {}).values())
    return tuple(int.from_bytes(blake2b(s, digest_size=8).digest(), "little") for s in states)
