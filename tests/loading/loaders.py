"""Every loader, sampler and stream of the course, prepared for the tests of their contract."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from course_utils.loading.event_shards import EventShards
from course_utils.loading.events import pad_collate
from course_utils.loading.root_files import ClusterStream, RootFiles
from course_utils.loading.shards import decode_event, event_samples, stream_shards, write_shards
from data_scripts import make_collisions
from keepfed.loaders.contract import EpochLoader
from keepfed.loaders.images import ImageLoader, pack_images
from keepfed.loaders.ragged import LengthBuckets, RaggedCollate, RaggedLoader
from keepfed.loaders.resume import ResumableBatches
from keepfed.loaders.stream import BlockSampler

N = 41  # samples, except for streams; odd, so ranks get unequal shares
LENGTHS = np.arange(N) * 7 % 5 + 1  # rows of the ragged samples


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> int:
        return index


class Kind(NamedTuple):
    """A loader: how to create it, loop over it, and list the samples of a batch."""

    make: Callable[..., EpochLoader]  # (folder, **options); options: place, seed, batch_size
    load: Callable[..., Iterable[Any]]  # (loader, **options of DataLoader)
    ids: Callable[[Any], list[int]]
    has_position: bool = False
    follows_itself: bool = False
    is_stream: bool = False


def prepare(folder: Path, events: Path) -> None:
    (folder / "events").symlink_to(events)
    np.save(folder / "rows.npy", np.repeat(np.arange(N), LENGTHS))
    (folder / "jpegs" / "all").mkdir(parents=True)
    for number in range(N):
        shade = np.full((16, 16, 3), 5 * number, np.uint8)
        Image.fromarray(shade).save(folder / "jpegs" / "all" / f"{number:02d}.jpg")
    pack_images(folder / "packed.images", folder / "jpegs")
    write_shards(event_samples(events), folder / "shards", per_shard=90)
    for number in range(3):
        jets = make_collisions.draw_jets("signal", 200, np.random.default_rng(number))
        make_collisions.write_jets(folder / f"jets_{number}.root", jets)


def _ragged(folder: Path, batch_size: int = 8, **options: Any) -> RaggedLoader:
    offsets, fields = np.append(0, LENGTHS.cumsum()), {"number": np.arange(N)}
    return RaggedLoader(folder / "rows.npy", offsets, batch_size, fields=fields, **options)


def _buckets(_folder: Path, batch_size: int = 8, **options: Any) -> LengthBuckets:
    return LengthBuckets(LENGTHS, batch_size, bucket=4, **options)


def _images(folder: Path, batch_size: int = 8, **options: Any) -> ImageLoader:
    return ImageLoader(folder / "packed.images", batch_size, 8, threads=2, **options)


def _batches(_folder: Path, batch_size: int = 8, **options: Any) -> ResumableBatches:
    return ResumableBatches(N, batch_size, **options)


def _load_batches(batches: ResumableBatches, **options: Any) -> Iterable[Any]:
    return DataLoader(Numbers(), batch_sampler=batches, **options)


def _blocks(_folder: Path, batch_size: int = 8, **options: Any) -> BlockSampler:
    return BlockSampler(N, 5, together=2, **options)


def _load_blocks(sampler: BlockSampler, **options: Any) -> Iterable[Any]:
    return DataLoader(Numbers(), 8, sampler=sampler, **options)


def _events(folder: Path, batch_size: int = 8, **options: Any) -> EventShards:
    return EventShards(folder / "events", shards=7, buffer=50, **options)


def _tar(folder: Path, batch_size: int = 8, **options: Any) -> Any:
    return stream_shards(folder / "shards", decode=decode_event, buffer=50, **options)


def _clusters(folder: Path, batch_size: int = 8, **options: Any) -> ClusterStream:
    files = RootFiles(sorted(folder.glob("jets_*.root")), ["part_energy"])
    return ClusterStream(files, buffer=50, **options)


def _integers(batch: Any) -> list[int]:
    return [int(number) for number in batch]


def _field(name: str) -> Callable[[Any], list[int]]:
    return lambda batch: _integers(batch[name])


_load_ragged = partial(DataLoader, batch_size=None)
_load_stream = partial(DataLoader, batch_size=32, collate_fn=pad_collate)
_load_clusters = partial(DataLoader, batch_size=32, collate_fn=RaggedCollate("values"))
BOTH = {"has_position": True, "follows_itself": True}
KINDS = {
    "images": Kind(_images, lambda loader: loader, _field("index"), **BOTH),
    "ragged": Kind(_ragged, _load_ragged, _field("number"), **BOTH),
    "buckets": Kind(_buckets, _load_batches, _integers, has_position=True),
    "batches": Kind(_batches, _load_batches, _integers, has_position=True),
    "blocks": Kind(_blocks, _load_blocks, _integers),
    "events": Kind(_events, _load_stream, _field("event_id"), is_stream=True),
    "clusters": Kind(_clusters, _load_clusters, _field("index"), is_stream=True),
    "tar": Kind(_tar, _load_stream, _field("event_id"), is_stream=True),
}
