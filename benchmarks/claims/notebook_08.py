"""Count or measure the claims of notebook 08."""

from timeit import repeat
from typing import Any

import torch
from kornia.augmentation import RandomResizedCrop
from torch import Tensor
from torchvision.transforms import v2

from course_utils.loading.images import Augment, per_sample
from course_utils.stories.peers.measure import threads
from course_utils.teaching.notebook import data_path
from keepfed.loaders.images import Jpegs

AUGMENT = Augment(size=224)


def _photos(transform: Any = None) -> Jpegs:
    return Jpegs(data_path("images", "S"), transform)


def _copies(count: int = 64) -> Tensor:
    image: Tensor = _photos()[30][0]
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


def bytes_of_floats_over_bytes() -> int:
    """Return the size of a batch in float32, relative to uint8."""
    batch = _copies(4)
    return batch.float().nbytes // batch.contiguous().nbytes


def frames_over_float_crops() -> float:
    """Return the bytes of whole frames in uint8, relative to augmented ones."""
    return _copies(4).contiguous().nbytes / AUGMENT(_copies(4)).nbytes


def augmented_over_decoded() -> float:
    """Measure the time of an image with augmentation, relative to none, on one core."""
    return _seconds(_photos(per_sample(AUGMENT))) / _seconds(_photos())


def _seconds(photos: Jpegs) -> float:
    with threads(1):
        return min(repeat(lambda: [photos[i] for i in range(0, 160, 10)], number=1, repeat=7)[1:])


def batch_over_one_at_a_time() -> float:
    """Measure the time of a batch of 64 on the CPU, relative to torchvision one at a time."""
    photos, alone = _photos(), per_sample(AUGMENT)
    images = torch.stack([photos[index][0] for index in range(0, 192, 3)])
    ways = (lambda: AUGMENT(images)), (lambda: [alone(image) for image in images])
    with threads(1):
        batch, single = (min(repeat(way, number=1, repeat=5)[1:]) for way in ways)
    return batch / single
