"""Image loaders that decode in threads, including ours, and the speed of the decoder alone.

Libraries that the course does not install are imported inside functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.peers.events import FFCV
from benchmarks.peers.images.jpegs import Files, write_files
from benchmarks.peers.images.recipes import OpenCv
from benchmarks.peers.images.spec import (
    CORES,
    MEAN,
    SIDE,
    STD,
    THREADS,
    Batch,
    ImageSpec,
    image_peer,
)
from course_utils.stories.peers.libraries import GRAIN, SPDL
from course_utils.stories.peers.peer import Package
from keepfed.loaders.images import Crops, ImageLoader, pack_images

DALI = Package("nvidia-dali-cuda120", "2.4.0", megabytes=900)
OURS, DECODER = "image loader", "limit: decode whole images"


def _array_record(folder: Path, jpegs: Sequence[bytes]) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "jpegs.array_record"), "group_size:1")
    for place, jpeg in enumerate(jpegs):
        writer.write(place.to_bytes(4) + jpeg)
    writer.close()


@image_peer("grain, simplejpeg, OpenCV", _array_record, needs=GRAIN, uses=THREADS)
def _grain(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    import grain

    recipe = OpenCv(spec)
    source: Any = grain.sources.ArrayRecordDataSource(str(folder / "jpegs.array_record"))

    def decode(record: bytes) -> Any:
        return recipe(record[4:]).numpy(), int.from_bytes(record[:4])

    def epoch(number: int) -> Iterator[Batch]:
        data = grain.MapDataset.source(source).shuffle(seed=number).map(decode)
        options = grain.ReadOptions(num_threads=CORES, prefetch_buffer_size=2 * batch_size)
        for images, places in data.to_iter_dataset(options).batch(batch_size):
            yield torch.as_tensor(images), torch.as_tensor(places)

    return epoch


@image_peer("SPDL, simplejpeg, OpenCV", write_files, needs=SPDL, uses=THREADS)
def _spdl(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from spdl.pipeline import PipelineBuilder

    files = Files(folder, OpenCv(spec))

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
        """Store the JPEG bytes, because the usual field would encode each image again."""

        def encode(self, destination: Any, image: bytes, malloc: Any) -> None:
            destination["mode"] = 0  # JPEG
            with Image.open(BytesIO(image)) as header:
                destination["width"], destination["height"] = header.size
            destination["data_ptr"], storage = malloc(len(image))
            storage[:] = np.frombuffer(image, np.uint8)

    fields = {"image": AsTheyAre(write_mode="jpg"), "place": IntField()}
    writer = DatasetWriter(str(folder / "jpegs.beton"), fields, num_workers=1)
    writer.from_indexed_dataset([(jpeg, place) for place, jpeg in enumerate(jpegs)])


@image_peer("FFCV", _beton, needs=FFCV, uses=THREADS)
def _ffcv(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
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

    crop = RandomResizedCropRGBImageDecoder((SIDE, SIDE), spec.scale, spec.ratio)
    steps = [crop, RandomHorizontalFlip(spec.flip)]
    if spec.floats:
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


@image_peer("DALI, on the CPU", write_files, needs=DALI, uses=THREADS)
def _dali(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    files = sorted(map(str, folder.rglob("*.jpg")))

    @pipeline_def(batch_size=batch_size, num_threads=CORES, device_id=None)  # type: ignore[untyped-decorator]
    def steps() -> Any:
        jpegs, places = fn.readers.file(
            files=files, labels=list(range(len(files))), shuffle_after_epoch=True, name="files"
        )
        crop = fn.decoders.image_random_crop(
            jpegs, random_area=list(spec.scale), random_aspect_ratio=list(spec.ratio)
        )
        image = fn.resize(crop, size=[SIDE, SIDE], interp_type=types.INTERP_LINEAR)
        dtype, numbers = types.UINT8, {}
        if spec.floats:
            dtype = types.FLOAT
            numbers = {"mean": [255 * m for m in MEAN], "std": [255 * s for s in STD]}
        flips = fn.random.coin_flip(probability=spec.flip)
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


@image_peer(DECODER, write_files, uses=THREADS)
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
            yield from pool.map(some, order.split(batch_size // 8))  # type: ignore[no-untyped-call]

    return epoch


def _packed(folder: Path, jpegs: Sequence[bytes]) -> None:
    with TemporaryDirectory() as place:
        write_files(Path(place), jpegs)
        pack_images(folder / "packed.images", place)


@image_peer(OURS, _packed, uses=THREADS)
def ours(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
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
