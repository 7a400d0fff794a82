"""What the image loader is measured beside: JPEGs, cropped at random, flipped, in batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers.images.jpegs import make, square
from benchmarks.peers.images.processes import PILLOW, V2
from benchmarks.peers.images.recipes import Pillow
from benchmarks.peers.images.threads import DECODER, OURS, ROUGH
from benchmarks.peers.images.wanted import ALL, MEAN, SIDE, STD, Open, Wanted
from course_stories.peers.peer import Epoch, Peer, Peers, Write

__all__ = ["DECODER", "OURS", "PILLOW", "ROUGH", "V2", "image_peers", "make"]

# of a square image that is all of it: so it shows how far the pixels of two libraries are apart
ALL_OF_IT: Any = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": 0.0}
SQUARES = 16


def image_peers(*, floats: bool) -> Peers:
    """Return all that load images, as floats or as bytes."""
    return {
        name: Peer(
            write,
            partial(_places, load, Wanted(floats)),
            pixels=None if name == DECODER else partial(_pixels, write, load, floats),
            **options,
        )
        for name, (write, load, options) in ALL.items()
    }


def _places(load: Open, wanted: Wanted, folder: Path, batch_size: int) -> Epoch:
    batches = load(folder, batch_size, wanted)
    return lambda number: (torch.as_tensor(places).clone() for _, places in batches(number))


def _pixels(write: Write, load: Open, floats: bool, folder: Path) -> float:
    """Return how far images are from those of Pillow and torchvision, of 255, in the mean."""
    squares = [square(jpeg) for jpeg in make(folder, SQUARES, 400, 400)]
    wanted, place = Wanted(floats, **ALL_OF_IT), folder / "squares"
    place.mkdir()
    write(place, squares)
    found, places = next(load(place, SQUARES, wanted)(0))
    if found.shape[1:] != (3, SIDE, SIDE) or found.is_floating_point() != floats:
        raise ValueError(f"the batch is {found.dtype} {tuple(found.shape)}")
    levels = found.float()
    if floats:
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
        levels = 255 * (levels * std + mean)
    expected = list(map(Pillow(Wanted(floats=False, **ALL_OF_IT)), squares))
    return float((levels - torch.stack([expected[place] for place in places])).abs().mean())
