"""Loaders of JPEGs that the image loader is compared with: random crops, flips, batches.

All loaders get the same bytes, and each way to decode is the usual one or the fastest that we know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from benchmarks.peers.recipes import MEAN, SIDE, STD, ImageSpec, OpenCv, Pillow, Tensors
from course_utils.stories.peers.peer import Epoch, Peer, Peers, Write
from data_scripts.make_images import QUALITY, class_counts, read_photograph
from keepfed.loaders.images import Crops, ImageLoader, pack_images

OURS, DECODER = "image loader", "limit: decode whole images"
V2, PILLOW = "torchvision v2", "torchvision ImageFolder, Pillow"
CORES = 2
THREADS, PROCESSES = f"{CORES} threads", f"{CORES} processes"
# Crops the complete square image, so that the pixel values of two libraries can be compared.
ALL_OF_IT: Any = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": 0.0}
SQUARES = 16

Batch = tuple[torch.Tensor, torch.Tensor]  # images (n, 3, 224, 224) and their indices (n,)
Open = Callable[[Path, int, ImageSpec], Callable[[int], Iterator[Batch]]]


def make(folder: Path, count: int, width: int, height: int) -> list[bytes]:
    """Return JPEGs of about this size, made once in `folder` from photographs of scikit-image.

    Their sides differ by up to 15 %, like photographs taken by people. Images larger than a
    photograph of scikit-image continue it by mirroring, so they have as much detail as a photograph
    of that size.
    """
    place = folder / f"jpegs-{count}-{width}x{height}"
    names = [name for name, number in class_counts(count).items() for _ in range(number)]
    photographs = {name: np.asarray(read_photograph(name)) for name in set(names)}

    def cut(index: int) -> None:
        rng = np.random.default_rng([0, index])
        sides = np.rint((width, height) * rng.uniform(0.85, 1.15, 2)).astype(int)
        across, down = np.rint(sides * rng.uniform(0.6, 1.0)).astype(int)
        whole = photographs[names[index]]
        more = max(0, down - whole.shape[0]), max(0, across - whole.shape[1])
        whole = np.pad(whole, [(0, more[0]), (0, more[1]), (0, 0)], "symmetric")
        top = rng.integers(0, whole.shape[0] - down + 1)
        left = rng.integers(0, whole.shape[1] - across + 1)
        crop = Image.fromarray(whole[top : top + down, left : left + across])
        resized = crop.resize((int(sides[0]), int(sides[1])), Image.Resampling.BICUBIC)
        resized.save(place / f"{index:05d}.jpg", quality=QUALITY)

    if not place.exists():
        place.mkdir()
        with ThreadPoolExecutor() as pool:
            list(pool.map(cut, range(count)))
    return [path.read_bytes() for path in sorted(place.iterdir())]


def write_files(folder: Path, jpegs: Sequence[bytes]) -> None:
    """Write one file per image."""
    (folder / "class").mkdir()
    for place, jpeg in enumerate(jpegs):
        (folder / "class" / f"{place:05d}.jpg").write_bytes(jpeg)


class Files(Dataset[tuple[torch.Tensor, int]]):
    """Dataset with one JPEG file per image."""

    def __init__(self, folder: Path, recipe: Callable[[bytes], torch.Tensor]):
        self.paths = np.array(sorted(map(str, folder.rglob("*.jpg"))))
        self.recipe = recipe

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.recipe(Path(self.paths[index]).read_bytes()), index


def _workers(dataset: Any, batch_size: int, **options: Any) -> Callable[[int], Iterator[Batch]]:
    options = {"num_workers": CORES, "persistent_workers": True, "shuffle": True, **options}
    loader = DataLoader(dataset, batch_size, **options)
    return lambda number: iter(loader)


def _files(recipe: Callable[[ImageSpec], Any], folder: Path, size: int, spec: ImageSpec) -> Any:
    return _workers(Files(folder, recipe(spec)), size)


def _arrow(folder: Path, jpegs: Sequence[bytes]) -> None:
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    table = {"jpeg": list(jpegs), "place": list(range(len(jpegs)))}
    Dataset.from_dict(table).save_to_disk(folder / "arrow")


def _hugging_face(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from datasets import load_from_disk

    recipe = OpenCv(spec)

    def decode(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"image": [recipe(jpeg) for jpeg in rows["jpeg"]], "place": rows["place"]}

    batches: Any = _workers(load_from_disk(folder / "arrow").with_transform(decode), batch_size)
    return lambda number: ((batch["image"], batch["place"]) for batch in batches(number))


def _decoder(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from simplejpeg import decode_jpeg as decode  # with the same accuracy as our loader

    jpegs = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))]

    def some(places: torch.Tensor) -> Batch:
        for place in places.tolist():
            decode(jpegs[place])
        return torch.empty(0), places

    def epoch(number: int) -> Iterator[Batch]:
        with ThreadPoolExecutor(CORES) as pool:
            order = torch.randperm(len(jpegs))
            yield from pool.map(some, order.split(max(1, batch_size // 8)))  # type: ignore[no-untyped-call]

    return epoch


def _packed(folder: Path, jpegs: Sequence[bytes]) -> None:
    with TemporaryDirectory() as place:
        write_files(Path(place), jpegs)
        pack_images(folder / "packed.images", place)


def _ours(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    loader = ImageLoader(
        folder / "packed.images",
        batch_size,
        SIDE,
        dtype="float32" if spec.floats else "uint8",
        crops=Crops(scale=spec.scale, ratio=spec.ratio, flip_share=spec.flip),
        threads=CORES,
    )

    def epoch(number: int) -> Iterator[Batch]:
        loader.set_epoch(number)
        return ((batch["images"], batch["index"]) for batch in loader)

    return epoch


LOADERS: dict[str, tuple[Write, Open, str]] = {
    PILLOW: (write_files, partial(_files, Pillow), PROCESSES),
    V2: (write_files, partial(_files, Tensors), PROCESSES),
    "DataLoader, simplejpeg, OpenCV": (write_files, partial(_files, OpenCv), PROCESSES),
    "HF datasets, simplejpeg, OpenCV": (_arrow, _hugging_face, PROCESSES),
    DECODER: (write_files, _decoder, THREADS),
    OURS: (_packed, _ours, THREADS),
}


def image_peers(*, floats: bool) -> Peers:
    """Return all image loaders, for floats or for bytes."""
    return {
        name: Peer(
            write,
            partial(_places, load, ImageSpec(floats)),
            uses=uses,
            pixels=None if name == DECODER else partial(_pixels, write, load, floats),
        )
        for name, (write, load, uses) in LOADERS.items()
    }


def _places(load: Open, spec: ImageSpec, folder: Path, batch_size: int) -> Epoch:
    batches = load(folder, batch_size, spec)
    return lambda number: (torch.as_tensor(places).clone() for _, places in batches(number))


def _pixels(write: Write, load: Open, floats: bool, folder: Path) -> float:
    """Return the mean difference (of 255) from the pixels of Pillow and torchvision."""
    squares = [_square(jpeg) for jpeg in make(folder, SQUARES, 400, 400)]
    spec, place = ImageSpec(floats, **ALL_OF_IT), folder / "squares"
    place.mkdir()
    write(place, squares)
    images, places = next(load(place, SQUARES, spec)(0))
    if images.shape[1:] != (3, SIDE, SIDE) or images.is_floating_point() != floats:
        raise ValueError(f"the batch is {images.dtype} {tuple(images.shape)}")
    levels = images.float()
    if floats:
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
        levels = 255 * (levels * std + mean)
    expected = list(map(Pillow(ImageSpec(floats=False, **ALL_OF_IT)), squares))
    return float((levels - torch.stack([expected[place] for place in places])).abs().mean())


def _square(jpeg: bytes) -> bytes:
    """Return a JPEG cropped to the largest square."""
    with Image.open(BytesIO(jpeg)) as image, BytesIO() as square:
        image.crop((0, 0, min(image.size), min(image.size))).save(square, "jpeg", quality=90)
        return square.getvalue()
