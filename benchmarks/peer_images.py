"""What the image loader is measured beside: JPEGs, cropped at random, flipped, in batches.

All have the same bytes. They decode each image, take a part of 8 to 100 % of it and of any shape
from 3:4 to 4:3, make it 224 x 224 and flip every second one; they give uint8, or normalised
float32. Where a library leaves decoding to the user, it has the fastest recipe that we know of.
Libraries that are not part of the course are imported where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder
from torchvision.io import decode_jpeg
from torchvision.transforms import RandomResizedCrop, v2

from benchmarks.peer_loaders import ARRAY_RECORD, FFCV
from course_utils.loading.images import Crops, ImageLoader, pack_images
from data_scripts.make_images import cut_sizes
from notebooks.stories.peers.libraries import LITDATA, MOSAIC, SPDL
from notebooks.stories.peers.peer import Epoch, Package, Peer, Peers, Write

SIDE, CORES = 224, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DALI = Package("nvidia-dali-cuda120", "2.4.0", megabytes=900)
OPENCV = Package("opencv-python-headless", "5.0.0.93", megabytes=150)
TORCHCODEC = Package("torchcodec", "0.17.0", megabytes=20)
THREADS, PROCESSES = f"{CORES} threads", f"{CORES} processes"
OURS, DECODER = "image loader", "limit: decode whole images"
V2, PILLOW = "torchvision v2", "torchvision ImageFolder, Pillow"


@dataclass(frozen=True)
class Wanted:
    """What batches are made of, and from where crops and flips are drawn."""

    floats: bool  # normalised float32, or uint8
    scale: tuple[float, float] = (0.08, 1.0)  # of the area
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def tensors(self) -> list[Any]:
        """Return the steps of torchvision that crop, resize and flip."""
        crop = v2.RandomResizedCrop(SIDE, self.scale, self.ratio, antialias=True)
        return [crop, v2.RandomHorizontalFlip(self.flip)]

    def numbers(self) -> list[Any]:
        """Return the steps of torchvision that make floats, if any."""
        if not self.floats:
            return []
        return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


# of a square image that is all of it: so it shows how far the pixels of two libraries are apart
ALL_OF_IT: Any = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": 0.0}
SQUARES = 16

Batch = tuple[torch.Tensor, torch.Tensor]  # images (n, 3, 224, 224), and their places (n,)
Open = Callable[[Path, int, Wanted], Callable[[int], Iterator[Batch]]]
_ALL: dict[str, tuple[Write, Open, dict[str, Any]]] = {}


def _peer(name: str, write: Write, **options: Any) -> Callable[[Open], Open]:
    def register(load: Open) -> Open:
        _ALL[name] = write, load, options
        return load

    return register


def image_peers(*, floats: bool) -> Peers:
    """Return all that load images, as floats or as bytes."""
    return {
        name: Peer(
            write,
            partial(_places, load, Wanted(floats)),
            pixels=None if name == DECODER else partial(_pixels, write, load, floats),
            **options,
        )
        for name, (write, load, options) in _ALL.items()
    }


def _places(load: Open, wanted: Wanted, folder: Path, batch_size: int) -> Epoch:
    batches = load(folder, batch_size, wanted)
    return lambda number: (torch.as_tensor(places).clone() for _, places in batches(number))


def make(folder: Path, count: int, width: int, height: int) -> list[bytes]:
    """Return JPEGs of about that size, of photographs that scikit-image brings."""
    place = folder / f"jpegs-{count}-{width}x{height}"
    if not place.exists():
        place.mkdir()
        cut_sizes(place, count, width, height)
    return [path.read_bytes() for path in sorted(place.iterdir())]


def _pixels(write: Write, load: Open, floats: bool, folder: Path) -> float:
    """Return how far images are from those of Pillow and torchvision, of 255, in the mean."""
    squares = [_square(jpeg) for jpeg in make(folder, SQUARES, 400, 400)]
    wanted, place = Wanted(floats, **ALL_OF_IT), folder / "squares"
    place.mkdir()
    write(place, squares)
    found, places = next(load(place, SQUARES, wanted)(0))
    if found.shape[1:] != (3, SIDE, SIDE) or found.is_floating_point() != floats:
        raise ValueError(f"the batch is {found.dtype} {tuple(found.shape)}")
    levels = found.float()
    if floats:
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (MEAN, STD))
        levels = 255 * (levels * std + mean)
    expected = list(map(_Pillow(Wanted(floats=False, **ALL_OF_IT)), squares))
    return float((levels - torch.stack([expected[place] for place in places])).abs().mean())


def _square(jpeg: bytes) -> bytes:
    """Return a JPEG of the largest square."""
    with Image.open(BytesIO(jpeg)) as image, BytesIO() as square:
        image.crop((0, 0, min(image.size), min(image.size))).save(square, "jpeg", quality=90)
        return square.getvalue()


class _Pillow:
    """Pillow decodes and resizes, as in the references of torchvision."""

    def __init__(self, wanted: Wanted):
        self.steps = v2.Compose([*wanted.tensors(), v2.PILToTensor(), *wanted.numbers()])

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        with Image.open(BytesIO(jpeg)) as image:
            return torch.as_tensor(self.steps(image.convert("RGB")))


class _Tensors:
    """Torchvision decodes into tensors and resizes them."""

    def __init__(self, wanted: Wanted):
        self.steps = v2.Compose([*wanted.tensors(), *wanted.numbers()])

    def decode(self, jpeg: bytes) -> torch.Tensor:
        return decode_jpeg(torch.frombuffer(bytearray(jpeg), dtype=torch.uint8))

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        return torch.as_tensor(self.steps(self.decode(jpeg)))


class _Torchcodec(_Tensors):
    """Torchcodec decodes."""

    def decode(self, jpeg: bytes) -> torch.Tensor:
        from torchcodec.decoders import decode_jpeg as decode

        return torch.as_tensor(decode(jpeg))


class _OpenCv:
    """Simplejpeg decodes, OpenCV resizes: no faster recipe in Python is known to us."""

    def __init__(self, wanted: Wanted):
        self.wanted = wanted
        self.scale = np.float32(1 / 255 / np.array(STD))
        self.shift = np.float32(np.array(MEAN) / np.array(STD))

    def __call__(self, jpeg: bytes) -> torch.Tensor:
        import cv2
        from simplejpeg import decode_jpeg as decode

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


class _Files(Dataset[tuple[torch.Tensor, int]]):
    """A JPEG in a file for each image."""

    def __init__(self, folder: Path, recipe: Callable[[bytes], torch.Tensor]):
        self.paths = np.array(sorted(map(str, folder.rglob("*.jpg"))))
        self.recipe = recipe

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.recipe(Path(self.paths[index]).read_bytes()), index


class _ImageFolder(ImageFolder):  # type: ignore[misc]
    """The data set of torchvision, with places for classes."""

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return super().__getitem__(index)[0], index


def _files(folder: Path, jpegs: Sequence[bytes]) -> None:
    (folder / "class").mkdir()
    for place, jpeg in enumerate(jpegs):
        (folder / "class" / f"{place:05d}.jpg").write_bytes(jpeg)


def _workers(dataset: Any, batch_size: int, **options: Any) -> Callable[[int], Iterator[Batch]]:
    loader = DataLoader(dataset, batch_size, num_workers=CORES, persistent_workers=True, **options)
    return lambda number: iter(loader)


@_peer(PILLOW, _files, uses=PROCESSES)
def _image_folder(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    steps = v2.Compose([*wanted.tensors(), v2.PILToTensor(), *wanted.numbers()])
    return _workers(_ImageFolder(folder, steps), batch_size, shuffle=True)


@_peer(V2, _files, uses=PROCESSES)
def _torchvision(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    return _workers(_Files(folder, _Tensors(wanted)), batch_size, shuffle=True)


@_peer("torchcodec, torchvision v2", _files, needs=TORCHCODEC, uses=PROCESSES)
def _torchcodec(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    return _workers(_Files(folder, _Torchcodec(wanted)), batch_size, shuffle=True)


@_peer("DataLoader, simplejpeg, OpenCV", _files, needs=OPENCV, uses=PROCESSES)
def _data_loader(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    return _workers(_Files(folder, _OpenCv(wanted)), batch_size, shuffle=True)


def _tar(folder: Path, jpegs: Sequence[bytes]) -> None:
    import webdataset

    for start in range(0, len(jpegs), 256):
        with webdataset.TarWriter(str(folder / f"{start:05d}.tar")) as writer:
            for place, jpeg in enumerate(jpegs[start : start + 256], start):
                writer.write({"__key__": f"{place:05d}", "jpg": jpeg, "cls": place})


@_peer("WebDataset, simplejpeg, OpenCV", _tar, needs=OPENCV, uses=PROCESSES)
def _web_dataset(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    import webdataset

    urls, recipe = sorted(map(str, folder.glob("*.tar"))), _OpenCv(wanted)
    shards = webdataset.WebDataset(urls, shardshuffle=len(urls), empty_check=False)
    samples = shards.shuffle(1000).to_tuple("jpg", "cls").map_tuple(recipe, int)
    return _workers(samples, batch_size)


def _mds(folder: Path, jpegs: Sequence[bytes]) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"jpeg": "bytes", "place": "int"}) as writer:
        for place, jpeg in enumerate(jpegs):
            writer.write({"jpeg": jpeg, "place": place})


@_peer("MosaicML Streaming, torchvision v2", _mds, needs=MOSAIC, uses=PROCESSES)
def _mosaic(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    from streaming import StreamingDataset

    class Images(StreamingDataset):  # type: ignore[misc]
        recipe = _Tensors(wanted)

        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return self.recipe(sample["jpeg"]), sample["place"]

    return _workers(Images(local=str(folder), batch_size=batch_size, shuffle=True), batch_size)


def _chunks(folder: Path, jpegs: Sequence[bytes]) -> None:
    from litdata.streaming.writer import BinaryWriter

    writer = BinaryWriter(str(folder), chunk_bytes="8MB")
    for place, jpeg in enumerate(jpegs):
        writer[place] = {"jpeg": jpeg, "place": place}
    writer.done()
    writer.merge()


@_peer("LitData, simplejpeg, OpenCV", _chunks, needs=LITDATA, uses=PROCESSES)
def _litdata(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    recipe = _OpenCv(wanted)

    class Images(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            sample = super().__getitem__(index)
            return recipe(sample["jpeg"]), sample["place"]

    data = Images(str(folder), shuffle=True)
    loader = StreamingDataLoader(data, batch_size=batch_size, num_workers=CORES)
    return lambda number: iter(loader)


def _arrow(folder: Path, jpegs: Sequence[bytes]) -> None:
    from datasets import Dataset, disable_progress_bars

    disable_progress_bars()
    table = {"jpeg": list(jpegs), "place": list(range(len(jpegs)))}
    Dataset.from_dict(table).save_to_disk(folder / "arrow")


@_peer("HF datasets, simplejpeg, OpenCV", _arrow, needs=OPENCV, uses=PROCESSES)
def _hugging_face(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    from datasets import load_from_disk

    recipe = _OpenCv(wanted)

    def decode(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"image": [recipe(jpeg) for jpeg in rows["jpeg"]], "place": rows["place"]}

    data = load_from_disk(folder / "arrow").with_transform(decode)
    batches = _workers(data, batch_size, shuffle=True)
    return lambda number: ((batch["image"], batch["place"]) for batch in batches(number))


def _array_record(folder: Path, jpegs: Sequence[bytes]) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "jpegs.array_record"), "group_size:1")
    for place, jpeg in enumerate(jpegs):
        writer.write(place.to_bytes(4) + jpeg)
    writer.close()


@_peer("grain, simplejpeg, OpenCV", _array_record, needs=ARRAY_RECORD, uses=THREADS)
def _grain(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    import grain

    recipe = _OpenCv(wanted)
    source: Any = grain.sources.ArrayRecordDataSource(str(folder / "jpegs.array_record"))

    def decode(record: bytes) -> Any:
        return recipe(record[4:]).numpy(), int.from_bytes(record[:4])

    def epoch(number: int) -> Iterator[Batch]:
        data = grain.MapDataset.source(source).shuffle(seed=number).map(decode)
        options = grain.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * batch_size)
        for images, places in data.to_iter_dataset(options).batch(batch_size):
            yield torch.as_tensor(images), torch.as_tensor(places)

    return epoch


@_peer("SPDL, simplejpeg, OpenCV", _files, needs=SPDL, uses=THREADS)
def _spdl(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    from spdl.pipeline import PipelineBuilder

    files = _Files(folder, _OpenCv(wanted))

    def together(samples: list[tuple[torch.Tensor, int]]) -> Batch:
        images, places = zip(*samples, strict=True)
        return torch.stack(images), torch.tensor(places)

    def epoch(number: int) -> Iterator[Batch]:
        order = torch.randperm(len(files)).tolist()
        decoded = PipelineBuilder().add_source(order).pipe(files.__getitem__, concurrency=CORES)
        batches = decoded.aggregate(batch_size).pipe(together).add_sink(2)
        pipeline = batches.build(num_threads=CORES)
        with pipeline.auto_stop():
            yield from pipeline

    return epoch


def _beton(folder: Path, jpegs: Sequence[bytes]) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    class AsTheyAre(RGBImageField):  # type: ignore[misc]
        """Its field would encode each image once more, and so change it."""

        def encode(self, destination: Any, image: bytes, malloc: Any) -> None:
            destination["mode"] = 0  # JPEG
            with Image.open(BytesIO(image)) as header:
                destination["width"], destination["height"] = header.size
            destination["data_ptr"], storage = malloc(len(image))
            storage[:] = np.frombuffer(image, np.uint8)

    fields = {"image": AsTheyAre(write_mode="jpg"), "place": IntField()}
    writer = DatasetWriter(str(folder / "jpegs.beton"), fields, num_workers=1)
    writer.from_indexed_dataset([(jpeg, place) for place, jpeg in enumerate(jpegs)])


@_peer("FFCV", _beton, needs=FFCV, uses=THREADS)
def _ffcv(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    from ffcv.fields import RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import (
        NormalizeImage,
        RandomHorizontalFlip,
        Squeeze,
        ToTensor,
        ToTorchImage,
    )

    crop = RandomResizedCropRGBImageDecoder((SIDE, SIDE), wanted.scale, wanted.ratio)
    steps = [crop, RandomHorizontalFlip(wanted.flip)]
    if wanted.floats:
        mean, std = 255 * np.array(MEAN), 255 * np.array(STD)
        steps.append(NormalizeImage(mean, std, np.dtype("float32")))
    loader = Loader(
        str(folder / "jpegs.beton"),
        batch_size=batch_size,
        num_workers=CORES,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        custom_fields={"image": RGBImageField},
        pipelines={
            "image": [*steps, ToTensor(), ToTorchImage()],
            "place": [IntDecoder(), ToTensor(), Squeeze()],
        },
    )
    return lambda number: iter(loader)


@_peer("DALI, on the CPU", _files, needs=DALI, uses=THREADS)
def _dali(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    files = sorted(map(str, folder.rglob("*.jpg")))

    @pipeline_def(batch_size=batch_size, num_threads=CORES, device_id=None)  # type: ignore[misc]
    def steps() -> Any:
        jpegs, places = fn.readers.file(
            files=files, labels=list(range(len(files))), shuffle_after_epoch=True, name="files"
        )
        crop = fn.decoders.image_random_crop(
            jpegs, random_area=list(wanted.scale), random_aspect_ratio=list(wanted.ratio)
        )
        image = fn.resize(crop, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR)
        dtype, numbers = types.UINT8, {}
        if wanted.floats:
            dtype = types.FLOAT
            numbers = {"mean": [255 * m for m in MEAN], "std": [255 * s for s in STD]}
        flips = fn.random.coin_flip(probability=wanted.flip)
        return (
            fn.crop_mirror_normalize(
                image, dtype=dtype, output_layout="CHW", mirror=flips, **numbers
            ),
            places,
        )

    batches = DALIGenericIterator(
        steps(),
        ["images", "places"],
        reader_name="files",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )
    return lambda number: ((batch["images"], batch["places"][:, 0]) for (batch,) in batches)


@_peer(DECODER, _files, uses=THREADS)
def _decoder(folder: Path, batch_size: int, wanted: Wanted) -> Any:
    from simplejpeg import decode_jpeg as decode  # as exactly as our loader does

    jpegs = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))]

    def some(places: torch.Tensor) -> Batch:
        for place in places.tolist():
            decode(jpegs[place])
        return torch.empty(0), places

    def epoch(number: int) -> Iterator[Batch]:
        with ThreadPoolExecutor(CORES) as pool:
            yield from pool.map(some, torch.randperm(len(jpegs)).split(batch_size // 8))

    return epoch


def _packed(folder: Path, jpegs: Sequence[bytes]) -> None:
    with TemporaryDirectory() as place:
        _files(Path(place), jpegs)
        pack_images(folder / "packed.images", place)


def _ours(folder: Path, batch_size: int, wanted: Wanted, *, antialias: bool) -> Any:
    loader = ImageLoader(
        folder / "packed.images",
        batch_size,
        SIDE,
        dtype="float32" if wanted.floats else "uint8",
        crops=Crops(scale=wanted.scale, ratio=wanted.ratio, flip_share=wanted.flip),
        antialias=antialias,
        threads=CORES,
    )

    def epoch(number: int) -> Iterator[Batch]:
        loader.set_epoch(number)
        return ((batch["images"], batch["index"]) for batch in loader)

    return epoch


_peer(OURS, _packed, uses=THREADS)(partial(_ours, antialias=True))
_peer(f"{OURS}, no antialiasing", _packed, uses=THREADS)(partial(_ours, antialias=False))
