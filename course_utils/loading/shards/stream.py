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
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from webdataset.shardlists import expand_urls
from webdataset.tariterators import group_by_keys

from course_utils.loading.shards.read import REQUEST_BYTES, locate, open_shards, read_members
from course_utils.loading.shards.samples import (
    decode_event,
    decode_image,
    event_samples,
    image_samples,
)
from course_utils.loading.shards.write import LIST, Shard, read_list, url_of, write_shards
from course_utils.loading.stream import ShardedStream

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
    "url_of",
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
            which length and checksums are known. All are on one storage. An address may end with
            what the server wants, such as "?token=...".
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
    if request_bytes < 1:
        raise ValueError(f"{request_bytes=} cannot be; take at least 1.")
    shards = _find(urls, fs, headers)
    # kept by the dataset, so that no forked worker closes what it inherited
    storage, _ = locate(shards[0].url, fs, headers)
    reading = partial(open_shards, fs=storage, request_bytes=request_bytes)
    return TarStream(
        shards, reading, decode=decode, shuffle_shards=shuffle_shards, buffer=buffer, seed=seed
    )


class TarStream(ShardedStream[Any, Shard]):
    """The samples of tar shards, drawn as bytes and decoded afterwards; see `stream_shards`."""

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
        super().__init__(shards, shuffle_shards=shuffle_shards, buffer=buffer, seed=seed)
        self.reading, self.decode = reading, decode

    def __iter__(self) -> Iterator[Any]:
        drawn = super().__iter__()
        return map(self.decode, drawn) if self.decode else drawn

    def read(self, shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield samples of bytes, one shard after the other."""
        samples: Iterator[Any] = group_by_keys(read_members(self.reading(map(asdict, shards))))
        return samples

    def size(self, shard: Shard) -> int:
        """Return the number of samples of a shard.

        Raises:
            TypeError: there is no list that says so.
        """
        if shard.samples is None:
            raise TypeError(
                "Shards do not say how many samples they hold; give the folder that has their "
                f"{LIST}, or count as you go."
            )
        return shard.samples


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
        place, query = _parted(str(urls))
        (found,) = open_shards([{"url": f"{place}/{LIST}{query}"}], fs=fs, headers=headers)
        return read_list(found["stream"].read(), place, query)
    if not named:
        raise ValueError("There are no shards to stream; give their paths, or their folder.")
    return [Shard(url) for url in named]


def _parted(folder: str) -> tuple[str, str]:
    """Return the folder, and the query that an address may end with, such as ?token=..."""
    if not folder.startswith(("http://", "https://")):
        return folder.rstrip("/"), ""
    place, mark, query = folder.partition("?")
    return place.rstrip("/"), mark + query
