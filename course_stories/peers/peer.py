"""What a peer is: a way to write samples, and a way to load them in shuffled batches.

A sample is an array of float32 of shape (rows, 4); its first number is its place on the disk. So
whoever counts the places that come back knows what was dropped, repeated, or not shuffled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

Samples = NDArray[np.float32]  # (samples, rows, 4)
Epoch = Callable[[int], Iterator[torch.Tensor]]  # from the number of the epoch to its batches
Write = Callable[[Path, Any], None]  # samples or JPEGs, into a folder that is there and empty
Load = Callable[[Path, int], Epoch]  # from that folder and the batch size
L = TypeVar("L", bound=Load)


@dataclass(frozen=True)
class Package:
    """A library that is not part of the course: its name for pip, and the version we tried."""

    name: str
    version: str
    megabytes: int  # of it, and what it needs, on the disk


@dataclass(frozen=True)
class Peer:
    """A way to load samples."""

    write: Write
    load: Load
    needs: Package | None = None
    one_by_one: bool = False  # whether it is so slow with small samples that a part has to do
    uses: str = "1 thread"
    threads: int = 1  # of torch
    pixels: Callable[[Path], float] | None = None  # of images: how far they are from others


Peers = dict[str, Peer]


def peer(
    peers: Peers,
    name: str,
    write: Write,
    *,
    needs: Package | None = None,
    one_by_one: bool = False,
    uses: str = "1 thread",
) -> Callable[[L], L]:
    """Register a way to load what `write` wrote, under its name, in `peers`."""

    def register(load: L) -> L:
        peers[name] = Peer(write, load, needs, one_by_one, uses)
        return load

    return register


def numbered(count: int, rows: int) -> Samples:
    """Make `count` samples of random numbers that begin with their place."""
    samples = np.random.default_rng(0).random((count, rows, 4), np.float32)
    samples[:, 0, 0] = np.arange(count)  # exact up to 2 ** 24
    return samples


def places(batch: Any) -> torch.Tensor:
    """Return the places of the samples of a batch, in memory of their own."""
    samples = torch.as_tensor(batch)
    return samples.reshape(len(samples), -1)[:, 0].clone()


def same(samples: Any) -> Any:
    """Leave a batch as it is: the dataset made it."""
    return samples


def shuffled(dataset: Any, batch_size: int, **options: Any) -> Epoch:
    """Load a dataset whose samples, or whose batches, are arrays."""
    loader = DataLoader(dataset, batch_size, shuffle=True, **options)

    def epoch(number: int) -> Iterator[torch.Tensor]:
        return map(places, loader)

    return epoch
