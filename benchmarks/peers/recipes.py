"""Ways to decode, crop and resize one JPEG.

They crop 8 to 100 % of the area with an aspect ratio from 3:4 to 4:3, resize to 224 x 224, and flip
every second image. They return uint8, or normalized float32. torchvision takes seconds to import,
and is imported inside functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import Image

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ImageSpec:
    """Type of the batches, and ranges of crops and flips."""

    floats: bool  # normalized float32 instead of uint8
    scale: tuple[float, float] = (0.08, 1.0)  # share of the area
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5


class Tensors:
    """Decode to tensors and resize them with torchvision."""

    def __init__(self, spec: ImageSpec):
        from torchvision.transforms import v2

        steps: list[Any] = [
            v2.RandomResizedCrop(SIDE, spec.scale, spec.ratio, antialias=True),
            v2.RandomHorizontalFlip(spec.flip),
            v2.PILToTensor(),  # leaves tensors as they are
        ]
        if spec.floats:
            steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        self.steps = v2.Compose(steps)

    def decode(self, jpeg: bytes) -> Any:
        """Return all pixels of one JPEG."""
        from torchvision.io import decode_jpeg

        return decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8))

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        """Return the pixels of one JPEG."""
        return torch.as_tensor(self.steps(self.decode(jpeg)))


class Pillow(Tensors):
    """Decode and resize with Pillow, as in torchvision's reference scripts."""

    def decode(self, jpeg: bytes) -> Any:
        """Return one image of Pillow."""
        with Image.open(BytesIO(jpeg)) as image:
            return image.convert("RGB")


class OpenCv:
    """Decode with simplejpeg and resize with OpenCV, the fastest Python method that we know."""

    def __init__(self, spec: ImageSpec):
        self.spec = spec
        self.scale = (1 / 255 / np.array(STD)).astype(np.float32)
        self.shift = (np.array(MEAN) / np.array(STD)).astype(np.float32)

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        """Return the pixels of one JPEG."""
        import cv2
        from simplejpeg import decode_jpeg as decode
        from torchvision.transforms import RandomResizedCrop

        cv2.setNumThreads(1)
        image = decode(jpeg, fastdct=True, fastupsample=True)
        shape = torch.empty(1).expand(3, *image.shape[:2])  # only its shape is used
        top, left, height, width = RandomResizedCrop.get_params(
            shape, list(self.spec.scale), list(self.spec.ratio)
        )
        image = cv2.resize(image[top : top + height, left : left + width], (SIDE, SIDE))
        if torch.rand(()) < self.spec.flip:
            image = cv2.flip(image, 1)
        if not self.spec.floats:
            return torch.from_numpy(image).permute(2, 0, 1)
        floats = np.empty((3, SIDE, SIDE), np.float32)
        # One plane at a time is five times faster than all colors of a pixel together.
        for color, plane in enumerate(cv2.split(image)):
            np.multiply(plane, self.scale[color], out=floats[color])
            floats[color] -= self.shift[color]
        return torch.from_numpy(floats)
