"""Create JPEGs, and write each to a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

from data_scripts.make_images import cut_sizes


def make(folder: Path, count: int, width: int, height: int) -> list[bytes]:
    """Return JPEGs of about this size, made from photographs of scikit-image."""
    place = folder / f"jpegs-{count}-{width}x{height}"
    if not place.exists():
        place.mkdir()
        cut_sizes(place, count, width, height)
    return [path.read_bytes() for path in sorted(place.iterdir())]


def square(jpeg: bytes) -> bytes:
    """Return a JPEG cropped to the largest square."""
    with Image.open(BytesIO(jpeg)) as image, BytesIO() as square:
        image.crop((0, 0, min(image.size), min(image.size))).save(square, "jpeg", quality=90)
        return square.getvalue()


def write_files(folder: Path, jpegs: Sequence[bytes]) -> None:
    (folder / "class").mkdir()
    for place, jpeg in enumerate(jpegs):
        (folder / "class" / f"{place:05d}.jpg").write_bytes(jpeg)


class Files(Dataset[tuple[torch.Tensor, int]]):
    """Dataset with one JPEG file per image."""

    def __init__(self, folder: Path, recipe: Callable[[bytes], torch.Tensor]):
        self.paths = np.array(sorted(map(str, folder.rglob("*.jpg"))))
        self.recipe = recipe

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.recipe(Path(self.paths[index]).read_bytes()), index
