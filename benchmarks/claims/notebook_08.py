"""Count or measure the claims of notebook 08."""

import torch
from kornia.augmentation import RandomResizedCrop
from torch import Tensor
from torchvision.transforms import v2

from course_utils.loading.images import Augment
from course_utils.teaching.notebook import data_path
from keepfed.loaders.images import Jpegs


def _copies(count: int = 64) -> Tensor:
    image: Tensor = Jpegs(data_path("images", "S"))[30][0]
    return image.expand(count, -1, -1, -1)


def _distinct(images: Tensor) -> int:
    return len({image.numpy().tobytes() for image in images})


def crops_of_torchvision() -> int:
    """Count the different crops in a batch that torchvision cropped at once."""
    return _distinct(v2.RandomResizedCrop(64)(_copies()))


def crops_of_kornia() -> int:
    """Count the different crops in a batch that Kornia cropped at once."""
    return _distinct(RandomResizedCrop((64, 64))(_copies() / 255))


def versions_of_ten_copies() -> int:
    """Count the versions of an image in 90 epochs, with ten augmented copies on disk."""
    small, seen = Augment(size=32), set()
    for epoch in range(90):
        generator = torch.Generator().manual_seed(epoch % 10)
        draws = small.draw(_copies(1).shape, generator=generator)
        seen.add(small(_copies(1), draws).numpy().tobytes())
    return len(seen)
