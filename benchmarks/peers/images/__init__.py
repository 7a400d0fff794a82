"""Loaders that the image loader is compared with: JPEGs, random crops, flips, batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.images.jpegs import make, square
from benchmarks.peers.images.processes import PILLOW, V2
from benchmarks.peers.images.recipes import Pillow
from benchmarks.peers.images.spec import ALL, MEAN, SIDE, STD, ImageSpec, Open
from benchmarks.peers.images.threads import DECODER, OURS
from course_utils.stories.peers.peer import Epoch, Peer, Peers, Write

__all__ = ["DECODER", "OURS", "PILLOW", "V2", "image_peers", "make"]

# Crops the complete square image, so that the pixel values of two libraries can be compared.
ALL_OF_IT: Any = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": 0.0}
SQUARES = 16


def image_peers(*, floats: bool) -> Peers:
    """Return all image loaders, for floats or for bytes."""
    return {
        name: Peer(
            write,
            partial(_places, load, ImageSpec(floats)),
            pixels=None if name == DECODER else partial(_pixels, write, load, floats),
            **options,
        )
        for name, (write, load, options) in ALL.items()
    }


def _places(load: Open, spec: ImageSpec, folder: Path, batch_size: int) -> Epoch:
    batches = load(folder, batch_size, spec)
    return lambda number: (torch.as_tensor(places).clone() for _, places in batches(number))


def _pixels(write: Write, load: Open, floats: bool, folder: Path) -> float:
    """Return the mean difference (of 255) from the pixels of Pillow and torchvision."""
    squares = [square(jpeg) for jpeg in make(folder, SQUARES, 400, 400)]
    spec, place = ImageSpec(floats, **ALL_OF_IT), folder / "squares"
    place.mkdir()
    write(place, squares)
    found, places = next(load(place, SQUARES, spec)(0))
    if found.shape[1:] != (3, SIDE, SIDE) or found.is_floating_point() != floats:
        raise ValueError(f"the batch is {found.dtype} {tuple(found.shape)}")
    levels = found.float()
    if floats:
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
        levels = 255 * (levels * std + mean)
    expected = list(map(Pillow(ImageSpec(floats=False, **ALL_OF_IT)), squares))
    return float((levels - torch.stack([expected[place] for place in places])).abs().mean())
