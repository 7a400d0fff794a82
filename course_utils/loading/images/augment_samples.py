"""The same augmentation one sample at a time, for workers: `Jpegs(folder, transform=...)`."""

from __future__ import annotations

from typing import Any

import torch
from torchvision.transforms import v2

from course_utils.loading.images.augment import Augment


def per_sample(augment: Augment) -> Any:
    """Return what `augment` does to a batch as transforms of torchvision, for a single image.

    They take uint8 (3, height, width) and return float32 (3, size, size). What they draw has the
    same distribution, save that torchvision also draws whether brightness or contrast comes first,
    and computes both on uint8: the values are rounded in between.
    """
    return v2.Compose(
        [
            v2.RandomResizedCrop(
                augment.size, scale=augment.scale, ratio=augment.ratio, antialias=True
            ),
            v2.RandomHorizontalFlip(augment.flip_share),
            v2.ColorJitter(augment.spread, augment.spread),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(augment.mean), list(augment.std)),
        ]
    )
