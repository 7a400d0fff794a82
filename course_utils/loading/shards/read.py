"""Stream samples out of tar shards: from a disk, a server or an object store, each exactly once.

    stream = stream_shards("shards", decode=decode_event, buffer=500)
    loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
    for epoch in range(3):
        stream.set_epoch(epoch)
        for batch in loader: ...

A shard is read to its last byte, or there is an error. The two steps that do so are plain
generators for pipelines of webdataset too, in the places of its `url_opener` and
`tar_file_expander`: they read through fsspec, and go on where a connection broke.

    stages = (partial(open_shards, headers=headers), read_members, group_by_keys)
    samples = wds.DataPipeline(wds.SimpleShardList(urls), wds.split_by_worker, *stages)
"""

from __future__ import annotations

import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from io import UnsupportedOperation
from pathlib import Path
from time import sleep
from typing import Any

import fsspec
from webdataset.shardlists import expand_urls
from webdataset.tariterators import group_by_keys

from course_utils.loading.shards.write import LIST, Shard, read_list
from keepfed.loaders.contract import WorkerSlot
from keepfed.loaders.stream import ShardedStream
from keepfed.measure.spans import stage

_REQUEST_BYTES = 4 * 2**20  # what one request asks for, and what a stream holds at most
_LEAST_BYTES = 64 * 2**10  # what is asked for at least after connections broke
_END_BYTES = 2 * tarfile.BLOCKSIZE  # zeros that end a tar file
_ATTEMPTS = 5  # how often in a row a request may fail


def stream_shards(
    urls: str | Path | Sequence[str | Path],
    *,
    fs: Any = None,
    headers: Mapping[str, str] | None = None,
    decode: Callable[[dict[str, Any]], Any] | None = None,
    shuffle_shards: bool = True,
    buffer: int = 1000,
    seed: int = 0,
    slot: WorkerSlot | None = None,
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
        decode: what to make of a sample, a dictionary of bytes: `decode_event`, `decode_image`, or
            another function that a worker can import. None: nothing.
        shuffle_shards: whether each epoch has the shards in another order.
        buffer: samples that a worker holds to draw from; 1 draws nothing. They are held as bytes,
            and decoded afterwards.
        seed: what the order depends on, besides the epoch.
        place: rank that this stream serves; None: the rank of the process.

    Raises:
        FileNotFoundError: the folder has no shards.
        ValueError: there are no urls, or `buffer` is less than 1.
    """
    return TarStream(
        _find(urls, fs, headers),
        fs,
        headers,
        decode,
        shuffle_shards=shuffle_shards,
        buffer=buffer,
        seed=seed,
        slot=slot,
    )


class TarStream(ShardedStream[Any, Shard]):
    """The samples of tar shards, drawn as bytes and decoded afterwards; see `stream_shards`."""

    def __init__(
        self,
        shards: Sequence[Shard],
        fs: Any,
        headers: Mapping[str, str] | None,
        decode: Callable[[dict[str, Any]], Any] | None,
        **order: Any,
    ):
        """Read nothing yet; `order` is what the base takes."""
        super().__init__(shards, **order)
        self.fs, self.headers, self.decode = fs, headers, decode

    def __iter__(self) -> Iterator[Any]:
        drawn = super().__iter__()
        return map(self.decode, drawn) if self.decode else drawn

    def read(self, shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield samples of bytes, one shard after the other."""
        opened = open_shards(map(asdict, shards), fs=self.fs, headers=self.headers)
        samples: Iterator[Any] = group_by_keys(read_members(opened))
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


def open_shards(
    shards: Iterable[Mapping[str, Any]], *, fs: Any = None, headers: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield each shard with a `stream` of its bytes, and look afterwards whether all came.

    A request that fails is made again, five times in all, each time for half as many bytes.

    Args:
        shards: dictionaries with the `url`; where they have `bytes` and `crc32`, the shard is held
            against them.
        fs: fsspec file system that has the urls, such as `slow_storage(...)`; None: the one that a
            url names, or the local disk.
        headers: sent with every request over HTTP, such as a token.
    """
    for shard in shards:
        storage, path = _locate(shard["url"], fs, headers)
        stream = ShardStream(shard, storage, path)
        yield {**shard, "stream": stream}
        if shard.get("crc32") not in (None, stream.crc32):
            raise OSError(
                f"{stream.url} is not what was written, its CRC-32 is another; write or fetch "
                "the shard again."
            )


def read_members(shards: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the files in each opened shard as webdataset's `group_by_keys` takes them.

    Raises:
        OSError: a shard is cut off or corrupted. Python's tarfile itself ends in silence where it
            meets a header that it cannot read, or no end.
    """
    for shard in shards:
        stream: ShardStream = shard["stream"]
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    if member.isreg():
                        data = archive.extractfile(member).read()
                        yield {"fname": member.name, "data": data, "__url__": shard["url"]}
                    archive.members = []  # else it would keep them all
            end = stream.rest(archive.offset)
        except tarfile.TarError as error:
            raise _corrupted(stream.url, stream.position) from error
        if len(end) < _END_BYTES or any(end):
            raise _corrupted(stream.url, archive.offset)
        yield {}  # the next file is of another sample, whatever its name


def _locate(url: str, fs: Any, headers: Mapping[str, str] | None = None) -> tuple[Any, str]:
    """Return the file system that has `url`, fit for use in this process, and the path on it."""
    if fs is None:
        options = {}
        if url.startswith(("http://", "https://")):
            options["headers"] = {"Accept-Encoding": "identity", **(headers or {})}
        fs, path = fsspec.core.url_to_fs(url, **options)
        return fs, path
    if fs.async_impl and fs._pid != os.getpid():
        # its requests are made by a thread, which did not come along in a fork
        fs = type(fs)(*fs.storage_args, **fs.storage_options)
    return fs, fs._strip_protocol(url)


class ShardStream:
    """The bytes of one shard from first to last, read in few large requests."""

    def __init__(self, shard: Mapping[str, Any], fs: Any, path: str):
        """Ask for the size where it is not known, and for nothing else."""
        self.url, token, _ = shard["url"].partition("?")  # what may follow, no message should tell
        self._tells_cause = not token  # fsspec and aiohttp give the whole address
        self.fs, self.path = fs, path
        self.position = 0  # bytes that were given out
        self.crc32 = 0  # of these
        self._ahead = memoryview(b"")
        self._last = b""
        listed = shard.get("bytes")
        self.size: int = self._insist(self._ask_size) if listed is None else listed

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, fewer only at the end; -1: all that are left."""
        wanted = self.size - self.position if size < 0 else min(size, self.size - self.position)
        parts = []
        while wanted > 0:
            if not self._ahead:
                self._ahead = memoryview(self._insist(self._request))
            part, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
            self.position += len(part)
            wanted -= len(part)
            parts.append(part)
        data = b"".join(parts)
        self.crc32 = zlib.crc32(data, self.crc32)
        self._last = data or self._last
        return data

    def rest(self, offset: int) -> bytes:
        """Return everything from `offset` on; of what was given out, only the last part is held."""
        held = self.position - offset
        given = self._last[-held:] if held > 0 else b""
        return given + self.read()

    def _request(self, attempt: int) -> bytes:
        asked = max(_REQUEST_BYTES >> attempt, min(_LEAST_BYTES, _REQUEST_BYTES))
        start, stop = self.position, min(self.size, self.position + asked)
        with stage("read"):
            data: bytes = self.fs.cat_file(self.path, start=start, end=stop)
        if len(data) > stop - start:
            raise UnsupportedOperation
        if not data:
            raise EOFError(f"it ends there, but should have {self.size:,} bytes")
        return data

    def _ask_size(self, attempt: int) -> int:
        size = self.fs.info(self.path)["size"]
        if size is None:
            raise EOFError("the server does not say how long it is")
        return int(size)

    def _insist(self, request: Callable[[int], Any]) -> Any:
        """Call `request` with the number of the attempt until it does not fail."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                sleep(0.1 * 2 ** (attempt - 1))
            try:
                return request(attempt)
            except Exception as error:  # every file system has exceptions of its own
                if (final := self._final(error)) is not None:
                    raise final from (error if self._tells_cause else None)
                reason = error
        raise ConnectionError(
            f"{self.url} cannot be read from byte {self.position:,} on, after {_ATTEMPTS} "
            f"attempts ({_words(reason)}); see that the server runs, and run again."
        ) from (reason if self._tells_cause else None)

    def _final(self, error: Exception) -> OSError | None:
        """Return what to raise at once, if another attempt would not help."""
        causes = list(_causes(error))
        statuses = {getattr(cause, "status", None) for cause in causes}
        if statuses & {401, 403} or any(isinstance(cause, PermissionError) for cause in causes):
            return PermissionError(
                f"{self.url} is not given out without the right token or key; look at what you "
                "pass as headers= or fs=, and run again."
            )
        # asked for a size over HTTP, fsspec says so whatever went wrong: there the cause counts
        is_missing = isinstance(error, FileNotFoundError) and (
            error.__cause__ is None or "http" not in self.fs.protocol
        )
        if is_missing or 404 in statuses:
            return FileNotFoundError(
                f"There is no {self.url}; look at the address, and whether the shards are written."
            )
        if isinstance(error, UnsupportedOperation):
            return UnsupportedOperation(
                f"{self.url} comes whole where a part was asked for; take a server that "
                "understands Range."
            )
        if isinstance(error, EOFError) or 416 in statuses:
            return OSError(
                f"{self.url} cannot be read from byte {self.position:,} on: {_words(error)}; "
                "write or fetch the shard again."
            )
        return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _words(error: BaseException) -> str:
    *_, root = _causes(error)
    text = re.sub(r"\?[^\s'\")]*", "", str(root))  # what follows an address may be a token
    return " ".join(text.split()) or type(root).__name__


def _corrupted(url: str, at: int) -> OSError:
    return OSError(
        f"{url} is cut off or corrupted near byte {at:,}; write or fetch the shard again."
    )
