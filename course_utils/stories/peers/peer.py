"""A peer: a loader for comparisons, which writes samples and serves them in shuffled batches.

A sample is a float32 array of shape (rows, 4). Its first value is its position on the disk, so the
positions in the batches show which samples were dropped, repeated or not shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

Samples = NDArray[np.float32]  # (samples, rows, 4)
Epoch = Callable[[int], Iterator[torch.Tensor]]  # from the epoch to its batches
Write = Callable[[Path, Any], None]  # writes samples or JPEGs into an empty folder
Load = Callable[[Path, int], Epoch]  # from that folder and the batch size
L = TypeVar("L", bound=Load)


@dataclass(frozen=True)
class Package:
    """A library that is not part of the course, with the version that we tested."""

    name: str
    version: str
    megabytes: int  # size on disk, including dependencies


@dataclass(frozen=True)
class Peer:
    """A loader for comparisons."""

    write: Write
    load: Load
    needs: Package | None = None
    one_by_one: bool = False  # whether it is so slow with small samples that it reads only a part
    uses: str = "1 thread"
    threads: int = 1  # torch threads
    pixels: Callable[[Path], float] | None = None  # for images: mean difference to a reference


Peers = dict[str, Peer]


def peer(peers: Peers, name: str, write: Write, **options: Any) -> Callable[[L], L]:
    """Register a loader for the files of `write` in `peers`, under `name`."""

    def register(load: L) -> L:
        peers[name] = Peer(write, load, **options)
        return load

    return register


def numbered(count: int, rows: int) -> Samples:
    """Return `count` random samples whose first value is their position."""
    samples = np.random.default_rng(0).random((count, rows, 4), np.float32)
    samples[:, 0, 0] = np.arange(count)  # exact up to 2 ** 24
    return samples


def places(batch: Any) -> torch.Tensor:
    """Return a copy of the positions of a batch's samples, or of its field `pulses`."""
    if hasattr(batch, "keys"):
        batch = batch["pulses"]
    samples = torch.as_tensor(batch)
    return samples.reshape(len(samples), -1)[:, 0].clone()


def same(samples: Any) -> Any:
    """Return a batch unchanged, because the dataset has already assembled it."""
    return samples


def epochs(loader: Iterable[Any], counted: Any = None) -> Epoch:
    """Return the epochs of a loader, after `counted.set_epoch` if that is given."""

    def epoch(number: int) -> Iterator[torch.Tensor]:
        if counted is not None:
            counted.set_epoch(number)
        return map(places, loader)

    return epoch


def shuffled(dataset: Any, batch_size: int, **options: Any) -> Epoch:
    """Load a dataset of arrays in shuffled batches."""
    return epochs(DataLoader(dataset, batch_size, shuffle=True, **options))
