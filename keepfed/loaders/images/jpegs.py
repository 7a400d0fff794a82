"""Read images from class folders, as torchvision's ImageFolder does, and trace every stage."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset

from keepfed.files import open_file
from keepfed.measure.spans import stage


class Jpegs(Dataset[tuple[Any, int]]):
    """Pairs of image and class number from files such as images-M/cat/00012.jpg."""

    def __init__(
        self,
        folder: str | Path,
        transform: Callable[[torch.Tensor], Any] | None = None,
        *,
        fs: Any = None,
    ):
        """List the files without opening them.

        Args:
            folder: Folder with one subfolder per class, each with .jpg files.
            transform: Function that is applied to each image, uint8 (3, height, width).
            fs: fsspec file system to read from, such as `slow_storage(...)`. None for local disk.

        Raises:
            FileNotFoundError: If there are no images.
        """
        self.folder, self.transform, self.fs = str(folder), transform, fs
        if fs is None:
            paths = [path.as_posix() for path in Path(folder).glob("*/*.jpg")]
        else:
            paths = fs.glob(f"{folder}/*/*.jpg")
        names = sorted("/".join(path.rsplit("/", 2)[1:]) for path in paths)  # cat/00012.jpg
        if not names:
            raise FileNotFoundError(
                f"{folder} has no .jpg files in class folders. Check the path, or create images "
                f"with `python -m course_data.make_images --out {folder}`."
            )
        of_class = [name.split("/")[0] for name in names]
        classes, labels = np.unique(of_class, return_inverse=True)
        self.classes: list[str] = classes.tolist()
        self.labels: NDArray[np.int64] = labels
        # one array, because forked workers would copy a list of strings over time
        self.names: NDArray[np.bytes_] = np.array(names, np.bytes_)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self._image(f"{self.folder}/{self.names[index].decode()}")
        if self.transform is not None:
            with stage("transform"):
                image = self.transform(image)
        return image, int(self.labels[index])

    def _image(self, path: str) -> torch.Tensor:
        try:
            with stage("read"), open_file(path, self.fs) as file:
                content = file.read()
            with stage("decode"), Image.open(BytesIO(content)) as image:
                pixels = np.array(image.convert("RGB"))
        except (OSError, UnidentifiedImageError) as error:
            raise OSError(
                f"{path} is missing or damaged. Copy it again. For images of the course, run "
                f"`python -m course_data.make_images --check --out {self.folder}`."
            ) from error
        return torch.from_numpy(pixels).permute(2, 0, 1)
