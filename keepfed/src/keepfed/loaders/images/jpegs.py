"""Read images from class folders, as torchvision's ImageFolder does, and trace every stage."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset

from keepfed.checks import files_below, position
from keepfed.errors import MissingFileError, unreadable
from keepfed.files import open_file
from keepfed.formatting import plural
from keepfed.measure.spans import stage
from keepfed.reading import reading

DEEP = ("I", "F")  # first letter of Pillow's modes with more than 8 bits per color
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
            ReadError: If there are no images, or none in one of the classes.
        """
        self.folder, self.transform, self.fs = str(folder).rstrip("/"), transform, fs
        with reading(self.folder):
            names = _local_names(self.folder) if fs is None else _remote_names(fs, self.folder)
        files = sorted(filter(_is_visible, names))
        names = [name for name in files if _is_image(name)]  # cat/00012.jpg
        if not names:
            problem = f"it has no images ({', '.join(IMAGES[:3])}, ...) in class folders"
            raise unreadable(folder, problem, "Check the path", kind=MissingFileError)
        _report({*files} - {*names}, self.folder)
        of_class = [name.split("/")[0] for name in names]
        classes, labels = np.unique(of_class, return_inverse=True)
        self.classes: list[str] = classes.tolist()
        self.labels: NDArray[np.int64] = labels
        # one array, because forked workers would copy a list of strings over time
        self.names: NDArray[np.bytes_] = np.array([os.fsencode(name) for name in names])

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        index = position(index, len(self), self.folder)
        image = self._image(f"{self.folder}/{self.name(index)}", index)
        if self.transform is not None:
            with stage("transform"):
                image = self.transform(image)
        return image, int(self.labels[index])

    def name(self, index: int) -> str:
        """Return the path of an image in the folder, such as cat/00012.jpg."""
        return os.fsdecode(self.names[index])

    def _image(self, path: str, index: int) -> torch.Tensor:
        with reading(path, index, step="Copy it again, or remove it"):
            with stage("read"), open_file(path, self.fs) as file:
                content = file.read()
            with stage("decode"), Image.open(BytesIO(content)) as image:
                if image.mode.startswith(DEEP) or ";16" in str(image.tile):
                    problem = "it has more than 8 bits per color, which would be cut off"
                    raise unreadable(path, problem, "Convert it to 8 bits", index)
                pixels = np.array(image.convert("RGB"))
        return torch.from_numpy(pixels).permute(2, 0, 1)


def _local_names(folder: str) -> list[str]:
    """Return the names of all files in the class folders, such as cat/2024/00012.jpg."""
    classes = [path for path in Path(folder).glob("[!.]*") if path.is_dir()]
    files = {path.name: list(files_below(str(path))) for path in classes}
    empty = [name for name, paths in files.items() if not any(map(_is_image, paths))]
    if empty and len(empty) < len(classes):
        problem = f"it has class folders without images ({', '.join(empty[:3])}), and the numbers "
        raise unreadable(
            folder, f"{problem}of the classes would change", "Remove them, or add their images"
        )
    real = {path.resolve(): path for path in classes}
    for path in classes:
        if (other := real[path.resolve()]) != path:
            problem = f"it is the same folder as {other.name}, so its images would have two classes"
            raise unreadable(path, problem, "Remove the link")
    return [path.removeprefix(f"{folder}/") for paths in files.values() for path in paths]


def _remote_names(fs: Any, folder: str) -> list[str]:
    place = fs._strip_protocol(folder).rstrip("/") + "/"
    return [path.removeprefix(place) for path in fs.find(place)]


def _is_visible(name: str) -> bool:
    return "/" in name and "/." not in f"/{name.rpartition('/')[0]}"


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
