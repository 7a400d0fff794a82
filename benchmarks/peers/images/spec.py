"""Specification of the image batches, and the registry of image loaders.

All loaders get the same bytes. They decode each image, crop 8 to 100 % of its area with an aspect
ratio from 3:4 to 4:3, resize it to 224 x 224, and flip every second image. They return uint8, or
normalised float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from course_utils.stories.peers.peer import Write

SIDE, CORES = 224, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
THREADS, PROCESSES = f"{CORES} threads", f"{CORES} processes"


@dataclass(frozen=True)
class ImageSpec:
    """Type of the batches, and ranges of crops and flips."""

    floats: bool  # normalised float32 instead of uint8
    scale: tuple[float, float] = (0.08, 1.0)  # share of the area
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def tensors(self) -> list[Any]:
        """Return torchvision's steps that crop, resize and flip."""
        from torchvision.transforms import v2

        crop = v2.RandomResizedCrop(SIDE, self.scale, self.ratio, antialias=True)
        return [crop, v2.RandomHorizontalFlip(self.flip)]

    def numbers(self) -> list[Any]:
        """Return torchvision's steps that convert to floats, if requested."""
        from torchvision.transforms import v2

        if not self.floats:
            return []
        return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


Batch = tuple[torch.Tensor, torch.Tensor]  # images (n, 3, 224, 224) and their indices (n,)
Open = Callable[[Path, int, ImageSpec], Callable[[int], Iterator[Batch]]]
ALL: dict[str, tuple[Write, Open, dict[str, Any]]] = {}


def image_peer(name: str, write: Write, **options: Any) -> Callable[[Open], Open]:
    def register(load: Open) -> Open:
        ALL[name] = write, load, options
        return load

    return register
