"""Read images from class folders, as torchvision's ImageFolder does, and trace every stage."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch.utils.data import Dataset

from keepfed.files import open_file
from keepfed.formatting import plural
from keepfed.measure.spans import stage

IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")


class Jpegs(Dataset[tuple[Any, int]]):
    """Pairs of image and class number from files such as images-M/cat/00012.jpg.

    The images of a class may be in deeper folders, and file endings may be in upper case. Hidden
    files and files that are not images are left out, which a warning reports.
    """

    def __init__(
        self,
        folder: str | Path,
        transform: Callable[[torch.Tensor], Any] | None = None,
        *,
        fs: Any = None,
    ):
        """List the files without opening them.

        Args:
            folder: Folder with one subfolder per class. All endings in `IMAGES` count.
            transform: Function that is applied to each image, uint8 (3, height, width).
            fs: fsspec file system to read from, such as `slow_storage(...)`. None for local disk.

        Raises:
            FileNotFoundError: If there are no images, or none in one of the classes.
        """
        self.folder, self.transform, self.fs = str(folder), transform, fs
        found = sorted(_files_of(Path(folder)) if fs is None else _files_on(fs, str(folder)))
        names = [name for name in found if _is_image(name)]  # cat/00012.jpg
        if not names:
            raise FileNotFoundError(
                f"{folder} has no images ({', '.join(IMAGES[:3])}, ...) in class folders. Check "
                "the path."
            )
        _report({*found} - {*names}, self.folder)
        of_class = [name.split("/")[0] for name in names]
        classes, labels = np.unique(of_class, return_inverse=True)
        self.classes: list[str] = classes.tolist()
        self.labels: NDArray[np.int64] = labels
        # one array, because forked workers would copy a list of strings over time
        self.names: NDArray[np.bytes_] = np.array([os.fsencode(name) for name in names])

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self._image(f"{self.folder}/{self.name(index)}")
        if self.transform is not None:
            with stage("transform"):
                image = self.transform(image)
        return image, int(self.labels[index])

    def name(self, index: int) -> str:
        """Return the path of an image in the folder, such as cat/00012.jpg."""
        return os.fsdecode(self.names[index])

    def _image(self, path: str) -> torch.Tensor:
        try:
            with stage("read"), open_file(path, self.fs) as file:
                content = file.read()
            with stage("decode"), Image.open(BytesIO(content)) as image:
                pixels = np.array(image.convert("RGB"))
        except (OSError, UnidentifiedImageError) as error:
            raise OSError(f"{path} is missing or damaged. Copy it again, or remove it.") from error
        return torch.from_numpy(pixels).permute(2, 0, 1)


def _files_of(folder: Path) -> Iterator[str]:
    """Yield the names of all files in the class folders, such as cat/2024/00012.jpg.

    Raises:
        FileNotFoundError: If a class has no images, because the numbers of others would change.
    """
    classes = [path for path in folder.glob("[!.]*") if path.is_dir()]
    empty = []
    for path in sorted(classes):
        names = list(_below(path, f"{path.name}/"))
        empty += [] if any(map(_is_image, names)) else [path.name]
        yield from names
    if empty and len(empty) < len(classes):
        raise FileNotFoundError(
            f"{folder} has class folders without images ({', '.join(empty[:3])}), and the numbers "
            "of the classes would change. Remove them, or add their images."
        )


def _below(folder: Path, prefix: str) -> Iterator[str]:
    """Yield the files of a folder and its subfolders."""
    for entry in os.scandir(folder):
        if entry.is_dir() and not entry.name.startswith("."):
            yield from _below(Path(entry), f"{prefix}{entry.name}/")
        elif not entry.is_dir():
            yield prefix + entry.name


def _files_on(fs: Any, folder: str) -> list[str]:
    """Return the names of the files in class folders on an fsspec file system."""
    place = fs._strip_protocol(folder).rstrip("/") + "/"
    names = (path.removeprefix(place) for path in fs.find(place))
    return [name for name in names if "/" in name and "/." not in f"/{name.rpartition('/')[0]}"]


def _is_image(name: str) -> bool:
    base = name.rpartition("/")[2]
    return base.lower().endswith(IMAGES) and not base.startswith(".")


def _report(others: set[str], folder: str) -> None:
    """Warn about files that are left out."""
    if others:
        endings = Counter(Path(name).suffix.lower() or Path(name).name for name in others)
        kinds = ", ".join(f"{count} {ending}" for ending, count in endings.most_common(3))
        warnings.warn(
            f"{folder}: ignored {plural(len(others), 'file')} in class folders, because they are "
            f"hidden or not images ({kinds}).",
            stacklevel=3,
        )
