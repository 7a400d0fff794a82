"""Stream samples out of tar shards: from a disk, a server or an object store, each exactly once.

    write_shards(event_samples(data_path("events"), seed=1), "shards", per_shard=100)
    stream = stream_shards("shards", decode=decode_event, buffer=500)
    loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
    for epoch in range(3):
        stream.set_epoch(epoch)
        for batch in loader: ...

`shard_files` has how shards are written, `shard_reading` how they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.utils.data import IterableDataset
from webdataset.shardlists import expand_urls
from webdataset.tariterators import group_by_keys

from course_utils.loading.shard_files import LIST, Shard, read_list, write_shards
from course_utils.loading.shard_reading import REQUEST_BYTES, locate, open_shards, read_members
from course_utils.loading.shard_samples import (
    decode_event,
    decode_image,
    event_samples,
    image_samples,
)
from course_utils.loading.shuffling import buffer_shuffle, epoch_rng, shuffled
from course_utils.loading.splitting import KnowsItsRank, count_batches, split
from course_utils.loading.workers import SharedEpoch

__all__ = [
    "Shard",
    "TarStream",
    "decode_event",
    "decode_image",
    "event_samples",
    "image_samples",
    "open_shards",
    "read_members",
    "stream_shards",
    "write_shards",
]


def stream_shards(
    urls: str | Path | Sequence[str | Path],
    *,
    fs: Any = None,
    headers: Mapping[str, str] | None = None,
    decode: Callable[[dict[str, Any]], Any] | None = None,
    shuffle_shards: bool = True,
    buffer: int = 1000,
    seed: int = 0,
    request_bytes: int = REQUEST_BYTES,
) -> TarStream:
    """Return a dataset that streams the samples of shards.

    Args:
        urls: a folder, or its address, that `write_shards` wrote; or shards: a list of them, or a
            pattern such as "http://host/shard-{000000..000009}.tar". A folder has a list, from
            which length and checksums are known. All are on one storage.
        fs: fsspec file system that has them, such as `slow_storage(...)` or
            `fsspec.filesystem("s3", ...)`; None: the one that the urls name, or the local disk.
        headers: sent with every request over HTTP, such as a token.
        decode: what to make of a sample, a dictionary of bytes; a function that a worker can
            import. None: nothing.
        shuffle_shards: whether each epoch has the shards in another order.
        buffer: samples that a worker holds to draw from; 1 draws nothing. They are held as bytes,
            and decoded afterwards.
        seed: what the order depends on, besides the epoch.
        request_bytes: what one request asks for.

    Raises:
        FileNotFoundError: the folder has no shards.
        ValueError: there are no urls, or a number is less than 1.
    """
    for name, value in {"buffer": buffer, "request_bytes": request_bytes}.items():
        if value < 1:
            raise ValueError(f"{name}={value} cannot be; take at least 1.")
    shards = _find(urls, fs, headers)
    # kept by the dataset, so that no forked worker closes what it inherited
    storage, _ = locate(shards[0].url, fs, headers)
    reading = partial(open_shards, fs=storage, request_bytes=request_bytes)
    return TarStream(
        shards, reading, decode=decode, shuffle_shards=shuffle_shards, buffer=buffer, seed=seed
    )


class TarStream(KnowsItsRank, IterableDataset[Any]):
    """The samples of shards, each shard read by one worker of one rank; see `stream_shards`.

    The order depends on (seed, epoch, rank, worker) and on nothing else. A worker for which there
    is no shard serves nothing.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        reading: Callable[..., Iterator[dict[str, Any]]],
        *,
        decode: Callable[[dict[str, Any]], Any] | None,
        shuffle_shards: bool,
        buffer: int,
        seed: int,
    ):
        """Read nothing yet; `reading` opens shards, as `open_shards` does."""
        self.shards, self.reading, self.decode = list(shards), reading, decode
        self.shuffle_shards, self.buffer, self.seed = shuffle_shards, buffer, seed
        self.epoch = SharedEpoch()

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next epoch; workers that persist see it too."""
        self.epoch.value = epoch

    def __iter__(self) -> Iterator[Any]:
        here = self.here()
        opened = self.reading(map(asdict, split(self._order(), here)))
        samples = group_by_keys(read_members(opened))
        own = epoch_rng(self.seed, self.epoch.value, here)
        drawn = buffer_shuffle(samples, self.buffer, own)
        return map(self.decode, drawn) if self.decode else drawn

    def __len__(self) -> int:
        """Return the number of samples of this rank in this epoch, all its workers together.

        Raises:
            TypeError: the shards have no list that says so.
        """
        whole_rank = replace(self.here(), worker=0, num_workers=1)
        return sum(split(self._sizes(), whole_rank))

    def count_batches(
        self, batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> int:
        """Return how many batches this rank will see in this epoch; `len(loader)` cannot know.

        Raises:
            TypeError: the shards have no list that says so.
        """
        here = self.here()
        return count_batches(
            self._sizes(),
            batch_size,
            rank=here.rank,
            world_size=here.world_size,
            num_workers=num_workers,
            drop_last=drop_last,
        )

    def _sizes(self) -> list[int]:
        sizes = [shard.samples for shard in self._order()]
        if None in sizes:
            raise TypeError(
                "Shards do not say how many samples they hold; give the folder that has their "
                f"{LIST}, or count as you go."
            )
        return [size for size in sizes if size is not None]

    def _order(self) -> list[Shard]:
        """Return the shards in the order of this epoch, which is the same in all places."""
        if not self.shuffle_shards:
            return self.shards
        return shuffled(self.shards, epoch_rng(self.seed, self.epoch.value))


def _find(
    urls: str | Path | Sequence[str | Path], fs: Any, headers: Mapping[str, str] | None
) -> list[Shard]:
    if not isinstance(urls, str | Path):
        named = [str(url) for url in urls]
    elif "{" in str(urls):
        named = expand_urls(str(urls))
    elif str(urls).partition("?")[0].endswith(".tar"):
        named = [str(urls)]
    else:
        place = str(urls).rstrip("/")
        (found,) = open_shards([{"url": f"{place}/{LIST}"}], fs=fs, headers=headers)
        return read_list(found["stream"].read(), place)
    if not named:
        raise ValueError("There are no shards to stream; give their paths, or their folder.")
    return [Shard(url) for url in named]
