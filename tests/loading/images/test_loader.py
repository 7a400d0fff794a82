from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
import torchvision.transforms.v2.functional as one_by_one
from torch import Tensor

from course_utils.loading.images import ImageLoader, Jpegs

N = 40


def numbers(loader: Iterable[dict[str, Tensor]]) -> list[list[int]]:
    return [batch["index"].tolist() for batch in loader]


def flat(batches: Iterable[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def pixels(loader: ImageLoader) -> dict[int, Tensor]:
    """Return a copy of each image of an epoch, by its index."""
    return {
        index: image.clone()
        for batch in loader
        for index, image in zip(batch["index"].tolist(), batch["images"], strict=True)
    }


@pytest.mark.parametrize("antialias", [True, False])
def test_crops_that_are_not_scaled_down_by_2_are_bit_for_bit_those_of_torchvision(
    photos: Path, packed: Path, antialias: bool
) -> None:
    files, size = Jpegs(photos), 160  # no side has 320 pixels or more
    loader = ImageLoader(packed, 7, size, dtype="uint8", antialias=antialias)
    windows, flips = loader.draw(range(N))
    assert 5 < flips.sum() < 35
    for index, ours in pixels(loader).items():
        whole, _ = files[index]
        theirs = one_by_one.resized_crop(
            whole, *windows[index].tolist(), [size, size], antialias=antialias
        )
        theirs = one_by_one.horizontal_flip(theirs) if flips[index] else theirs
        assert torch.equal(ours, theirs)
