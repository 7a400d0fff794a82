"""Ways to decode, crop and resize one JPEG."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from PIL import Image

from benchmarks.peers.images.spec import MEAN, SIDE, STD, ImageSpec


class Pillow:
    """Decode and resize with Pillow, as in torchvision's reference scripts."""

    def __init__(self, spec: ImageSpec):
        from torchvision.transforms import v2

        self.steps = v2.Compose([*spec.tensors(), v2.PILToTensor(), *spec.numbers()])

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        """Return the pixels of one JPEG."""
        with Image.open(BytesIO(jpeg)) as image:
            return torch.as_tensor(self.steps(image.convert("RGB")))


class Tensors:
    """Decode to tensors and resize them with torchvision."""

    def __init__(self, spec: ImageSpec):
        from torchvision.transforms import v2

        self.steps = v2.Compose([*spec.tensors(), *spec.numbers()])

    def decode(self, jpeg: bytes) -> torch.Tensor:
        """Return all pixels of one JPEG."""
        from torchvision.io import decode_jpeg

        pixels: torch.Tensor = decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8))
        return pixels

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        """Return the pixels of one JPEG."""
        return torch.as_tensor(self.steps(self.decode(jpeg)))


class Torchcodec(Tensors):
    """Decode with torchcodec, and resize with torchvision."""

    def decode(self, jpeg: bytes) -> torch.Tensor:
        """Return all pixels of one JPEG."""
        from torchcodec.decoders import decode_jpeg as decode

        return torch.as_tensor(decode(jpeg))


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
        # One plane at a time is five times faster than all colours of a pixel together.
        for colour, plane in enumerate(cv2.split(image)):
            np.multiply(plane, self.scale[colour], out=floats[colour])
            floats[colour] -= self.shift[colour]
        return torch.from_numpy(floats)
