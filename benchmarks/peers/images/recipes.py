"""Ways to make the wanted pixels of one JPEG."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import torch
from PIL import Image

from benchmarks.peers.images.wanted import MEAN, SIDE, STD, Wanted


class Pillow:
    """Pillow decodes and resizes, as in the references of torchvision."""

    def __init__(self, wanted: Wanted):
        from torchvision.transforms import v2

        self.steps = v2.Compose([*wanted.tensors(), v2.PILToTensor(), *wanted.numbers()])

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        """Return the pixels of one JPEG."""
        with Image.open(BytesIO(jpeg)) as image:
            return torch.as_tensor(self.steps(image.convert("RGB")))


class Tensors:
    """Torchvision decodes into tensors and resizes them."""

    def __init__(self, wanted: Wanted):
        from torchvision.transforms import v2

        self.steps = v2.Compose([*wanted.tensors(), *wanted.numbers()])

    def decode(self, jpeg: bytes) -> torch.Tensor:
        """Return all pixels, as they were saved."""
        from torchvision.io import decode_jpeg

        pixels: torch.Tensor = decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8))
        return pixels

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        """Return the pixels of one JPEG."""
        return torch.as_tensor(self.steps(self.decode(jpeg)))


class Torchcodec(Tensors):
    """Torchcodec decodes."""

    def decode(self, jpeg: bytes) -> torch.Tensor:
        """Return all pixels, as they were saved."""
        from torchcodec.decoders import decode_jpeg as decode

        return torch.as_tensor(decode(jpeg))


class OpenCv:
    """Simplejpeg decodes, OpenCV resizes: no faster recipe in Python is known to us."""

    def __init__(self, wanted: Wanted):
        self.wanted = wanted
        self.scale = (1 / 255 / np.array(STD)).astype(np.float32)
        self.shift = (np.array(MEAN) / np.array(STD)).astype(np.float32)

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        """Return the pixels of one JPEG."""
        import cv2
        from simplejpeg import decode_jpeg as decode
        from torchvision.transforms import RandomResizedCrop

        cv2.setNumThreads(1)
        image = decode(jpeg, fastdct=True, fastupsample=True)
        shape = torch.empty(1).expand(3, *image.shape[:2])  # all that is asked about it
        top, left, height, width = RandomResizedCrop.get_params(
            shape, list(self.wanted.scale), list(self.wanted.ratio)
        )
        image = cv2.resize(image[top : top + height, left : left + width], (SIDE, SIDE))
        if torch.rand(()) < self.wanted.flip:
            image = cv2.flip(image, 1)
        if not self.wanted.floats:
            return torch.from_numpy(image).permute(2, 0, 1)
        floats = np.empty((3, SIDE, SIDE), np.float32)
        # a plane at a time: five times faster than all colours of a pixel together
        for colour, plane in enumerate(cv2.split(image)):
            np.multiply(plane, self.scale[colour], out=floats[colour])
            floats[colour] -= self.shift[colour]
        return torch.from_numpy(floats)
