"""Image loaders that decode in worker processes, of a `DataLoader` or of the library.

If a library leaves decoding to the user, it uses the fastest method that we know. Libraries that
the course does not install, and torchvision, which takes seconds to import, are imported inside
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from benchmarks.peers.images.jpegs import Files, write_files
from benchmarks.peers.images.recipes import OpenCv, Tensors, Torchcodec
from benchmarks.peers.images.spec import CORES, PROCESSES, Batch, ImageSpec, image_peer
from course_utils.stories.peers.libraries import LITDATA, MOSAIC
from course_utils.stories.peers.peer import Package

TORCHCODEC = Package("torchcodec", "0.17.0", megabytes=20)
V2, PILLOW = "torchvision v2", "torchvision ImageFolder, Pillow"


def _workers(dataset: Any, batch_size: int, **options: Any) -> Callable[[int], Iterator[Batch]]:
    loader = DataLoader(dataset, batch_size, num_workers=CORES, persistent_workers=True, **options)
    return lambda number: iter(loader)


@image_peer(PILLOW, write_files, uses=PROCESSES)
def _image_folder(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = v2.Compose([*spec.tensors(), v2.PILToTensor(), *spec.numbers()])
    images = ImageFolder(folder, steps)
    images.samples = [(path, place) for place, (path, _) in enumerate(images.samples)]
    return _workers(images, batch_size, shuffle=True)


@image_peer(V2, write_files, uses=PROCESSES)
def _torchvision(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    return _workers(Files(folder, Tensors(spec)), batch_size, shuffle=True)


@image_peer("torchcodec, torchvision v2", write_files, needs=TORCHCODEC, uses=PROCESSES)
def _torchcodec(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    return _workers(Files(folder, Torchcodec(spec)), batch_size, shuffle=True)


@image_peer("DataLoader, simplejpeg, OpenCV", write_files, uses=PROCESSES)
def _data_loader(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    return _workers(Files(folder, OpenCv(spec)), batch_size, shuffle=True)


def _tar(folder: Path, jpegs: Sequence[bytes]) -> None:
    import webdataset

    for start in range(0, len(jpegs), 256):
        with webdataset.TarWriter(str(folder / f"{start:05d}.tar")) as writer:
            for place, jpeg in enumerate(jpegs[start : start + 256], start):
                writer.write({"__key__": f"{place:05d}", "jpg": jpeg, "cls": place})


@image_peer("WebDataset, simplejpeg, OpenCV", _tar, uses=PROCESSES)
def _web_dataset(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    import webdataset

    urls, recipe = sorted(map(str, folder.glob("*.tar"))), OpenCv(spec)
    shards = webdataset.WebDataset(urls, shardshuffle=len(urls), empty_check=False)
    samples = shards.shuffle(1000).to_tuple("jpg", "cls").map_tuple(recipe, int)
    return _workers(samples, batch_size)


def _mds(folder: Path, jpegs: Sequence[bytes]) -> None:
    from streaming import MDSWriter

    with MDSWriter(out=str(folder), columns={"jpeg": "bytes", "place": "int"}) as writer:
        for place, jpeg in enumerate(jpegs):
            writer.write({"jpeg": jpeg, "place": place})


@image_peer("MosaicML Streaming, torchvision v2", _mds, needs=MOSAIC, uses=PROCESSES)
def _mosaic(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from streaming import StreamingDataset

    class Images(StreamingDataset):  # type: ignore[misc]
        recipe = Tensors(spec)

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


@image_peer("LitData, simplejpeg, OpenCV", _chunks, needs=LITDATA, uses=PROCESSES)
def _litdata(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from litdata import StreamingDataLoader, StreamingDataset

    recipe = OpenCv(spec)

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


@image_peer("HF datasets, simplejpeg, OpenCV", _arrow, uses=PROCESSES)
def _hugging_face(folder: Path, batch_size: int, spec: ImageSpec) -> Any:
    from datasets import load_from_disk

    recipe = OpenCv(spec)

    def decode(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"image": [recipe(jpeg) for jpeg in rows["jpeg"]], "place": rows["place"]}

    data = load_from_disk(folder / "arrow").with_transform(decode)
    batches: Any = _workers(data, batch_size, shuffle=True)
    return lambda number: ((batch["image"], batch["place"]) for batch in batches(number))
