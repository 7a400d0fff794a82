"""Stream samples from tar shards on a disk, a server or an object store, each exactly once.

    stream = stream_shards("shards", decode=decode_event, buffer=500)
    loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
    for epoch in range(3):
        stream.set_epoch(epoch)
        for batch in loader: ...

A shard is read to its last byte, or an error is raised. The two reading steps are plain generators,
so webdataset pipelines can use them instead of `url_opener` and `tar_file_expander`. They read
through fsspec, and resume after a broken connection.

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

from course_utils.loading.shards.members import DividedSamples, MemberKeys
from course_utils.loading.shards.write import LIST, Shard, read_list
from keepfed.loaders.contract import WorkerSlot
from keepfed.loaders.stream import ShardedStream
from keepfed.measure.spans import stage

_REQUEST_BYTES = 4 * 2**20  # size of a request, and the most that a stream buffers
_LEAST_BYTES = 64 * 2**10  # smallest size of a request after broken connections
_END_BYTES = 2 * tarfile.BLOCKSIZE  # zeros at the end of a tar file
_ATTEMPTS = 5  # consecutive attempts before a request fails
_OTHER_FILES = {  # the first bytes of files that are not plain tar files
    b"\x1f\x8b": "it is compressed with gzip. Unpack it with `gunzip`",
    b"\x28\xb5\x2f\xfd": "it is compressed with zstd. Unpack it with `unzstd`",
    b"\xfd7zXZ": "it is compressed with xz. Unpack it with `unxz`",
    b"BZh": "it is compressed with bzip2. Unpack it with `bunzip2`",
    b"PK": "it is a zip archive. Unpack it, and write the samples with `write_shards`",
    b"<": "it is a web page, often the error of a server. Download the shard again",
    b"version https://git-lfs": "it is a pointer of Git LFS. Run `git lfs pull`",
}


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
        urls: Folder or URL of a folder that `write_shards` wrote, or the shards themselves: a list,
            or a pattern such as "http://host/shard-{000000..000009}.tar". A folder contains a list
            with the length and checksum of each shard. All shards are on one storage. URLs may end
            with a query for the server, such as "?token=...".
        fs: fsspec file system of the shards, such as `slow_storage(...)` or
            `fsspec.filesystem("s3", ...)`. None: chosen by the URL, or the local disk.
        headers: HTTP headers of every request, such as a token.
        decode: Function from a sample (a dictionary of bytes) to its final form: `decode_event`,
            `decode_image`, or any function that a worker can import. None: no decoding.
        shuffle_shards: Whether each epoch uses a different order of shards.
        buffer: Number of samples in the shuffle buffer of a worker. 1 does not shuffle. The buffer
            contains bytes, which are decoded afterwards.
        seed: Seed of the order, together with the epoch.
        slot: Rank that this stream serves. None: the rank of the process.

    Raises:
        FileNotFoundError: If the folder has no shards.
        ValueError: If `urls` is empty or `buffer` is less than 1.
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
    """Samples of tar shards, shuffled as bytes and then decoded; see `stream_shards`."""

    def __init__(
        self,
        shards: Sequence[Shard],
        fs: Any,
        headers: Mapping[str, str] | None,
        decode: Callable[[dict[str, Any]], Any] | None,
        **order: Any,
    ):
        """Store the settings, read nothing; `order` goes to the base class."""
        super().__init__(shards, **order)
        self.fs, self.headers, self.decode = fs, headers, decode

    def __iter__(self) -> Iterator[Any]:
        drawn = super().__iter__()
        return map(self.decode, drawn) if self.decode else drawn

    def read(self, shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield samples of bytes, shard by shard."""
        opened = open_shards(map(asdict, shards), fs=self.fs, headers=self.headers)
        samples: Iterator[Any] = group_by_keys(read_members(opened))
        return samples

    def size(self, shard: Shard) -> int:
        """Return the number of samples of a shard.

        Raises:
            TypeError: If there is no list with this number.
        """
        if shard.samples is None:
            raise TypeError(
                "The number of samples is unknown, because the shards have no list. Pass the "
                f"folder that contains their {LIST}, or count the samples while reading."
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
        place, query = _split_query(str(urls))
        (found,) = open_shards([{"url": f"{place}/{LIST}{query}"}], fs=fs, headers=headers)
        return read_list(found["stream"].read(), place, query)
    if not named:
        raise ValueError("There are no shards to stream. Pass their paths or their folder.")
    return [Shard(url) for url in named]


def _split_query(folder: str) -> tuple[str, str]:
    """Return the folder, and the query of its URL, such as ?token=..."""
    if not folder.startswith(("http://", "https://")):
        return folder.rstrip("/"), ""
    place, mark, query = folder.partition("?")
    return place.rstrip("/"), mark + query


def open_shards(
    shards: Iterable[Mapping[str, Any]], *, fs: Any = None, headers: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield each shard with a `stream` of its bytes, then verify its checksum.

    A failed request is repeated up to five times, each time for half as many bytes.

    Args:
        shards: Dictionaries with the key `url`. If they have `bytes` and `crc32`, each shard is
            verified.
        fs: fsspec file system of the URLs, such as `slow_storage(...)`. None: chosen by the URL, or
            the local disk.
        headers: HTTP headers of every request, such as a token.
    """
    for shard in shards:
        storage, path = _locate(shard["url"], fs, headers)
        stream = ShardStream(shard, storage, path)
        yield {**shard, "stream": stream}
        if shard.get("crc32") not in (None, stream.crc32):
            raise OSError(
                f"{stream.url} has changed: its CRC-32 is wrong. Write the shard again, or "
                "download it again."
            )


def read_members(shards: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the files of each opened shard, in the format for webdataset's `group_by_keys`.

    Raises:
        OSError: If a shard is truncated or corrupted. Python's tarfile ends silently if it cannot
            read a header, or if the end of the file is missing.
        ValueError: If readers would take apart or merge the samples of a shard.
    """
    divided = DividedSamples()
    for shard in shards:
        stream: ShardStream = shard["stream"]
        keys = MemberKeys(stream.url)
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
                for member in archive:
                    if member.isreg():
                        keys.add(member.name)
                        data = archive.extractfile(member).read()
                        yield {"fname": member.name, "data": data, "__url__": shard["url"]}
                    archive.members = []  # otherwise tarfile keeps all members
            end = stream.rest(archive.offset)
        except tarfile.TarError as error:
            raise _corrupted(stream, stream.position) from error
        if not any(end[:_END_BYTES]) and b"ustar" in end:
            raise OSError(
                f"{stream.url} is joined from two tar files, and the second one begins behind byte "
                f"{archive.offset:,}. Join them with `tar --concatenate` instead of `cat`."
            )
        if len(end) < _END_BYTES or any(end):
            raise _corrupted(stream, archive.offset)
        divided.add(keys)
        yield {}  # ends the sample, whatever the next file is called


def _locate(url: str, fs: Any, headers: Mapping[str, str] | None = None) -> tuple[Any, str]:
    """Return the file system of `url`, usable in this process, and the path on it."""
    if fs is None:
        options = {}
        if url.startswith(("http://", "https://")):
            options["headers"] = {"Accept-Encoding": "identity", **(headers or {})}
        fs, path = fsspec.core.url_to_fs(url, **options)
        return fs, path
    if fs.async_impl and fs._pid != os.getpid():
        # After a fork, create it again, because the thread for its requests does not survive.
        fs = type(fs)(*fs.storage_args, **fs.storage_options)
    return fs, fs._strip_protocol(url)


class ShardStream:
    """Bytes of one shard from first to last, read with few large requests."""

    def __init__(self, shard: Mapping[str, Any], fs: Any, path: str):
        """Request the size of the shard if it is unknown."""
        self.url, token, _ = shard["url"].partition("?")  # messages must not show the query
        self._shows_cause = not token  # errors of fsspec and aiohttp show the full URL
        self.fs, self.path = fs, path
        self.position = 0  # bytes returned
        self.crc32 = 0  # checksum of these bytes
        self._ahead = memoryview(b"")
        self._last = b""
        listed = shard.get("bytes")
        self.size: int = self._retry(self._ask_size) if listed is None else listed

    def read(self, size: int = -1) -> bytes:
        """Return the next `size` bytes, or fewer at the end; -1 returns the rest."""
        wanted = self.size - self.position if size < 0 else min(size, self.size - self.position)
        parts = []
        while wanted > 0:
            if not self._ahead:
                self._ahead = memoryview(self._retry(self._request))
            part, self._ahead = self._ahead[:wanted], self._ahead[wanted:]
            self.position += len(part)
            wanted -= len(part)
            parts.append(part)
        data = b"".join(parts)
        self.crc32 = zlib.crc32(data, self.crc32)
        self._last = data or self._last
        return data

    def rest(self, offset: int) -> bytes:
        """Return all bytes from `offset`, which must be in the last block returned or later."""
        held = self.position - offset
        given = self._last[-held:] if held > 0 else b""
        return given + self.read()

    def first_bytes(self) -> bytes:
        """Return the first bytes of the shard, which tell what kind of file it is."""
        try:
            data: bytes = self.fs.cat_file(self.path, start=0, end=64)
        except Exception:  # the error that the caller reports is the one that matters
            return b""
        return data

    def _request(self, attempt: int) -> bytes:
        asked = max(_REQUEST_BYTES >> attempt, min(_LEAST_BYTES, _REQUEST_BYTES))
        start, stop = self.position, min(self.size, self.position + asked)
        with stage("read"):
            data: bytes = self.fs.cat_file(self.path, start=start, end=stop)
        if len(data) > stop - start:
            raise UnsupportedOperation
        if not data:
            raise EOFError(f"the file ends there, but should have {self.size:,} bytes")
        return data

    def _ask_size(self, attempt: int) -> int:
        size = self.fs.info(self.path)["size"]
        if size is None:
            raise EOFError("the server does not report its size")
        return int(size)

    def _retry(self, request: Callable[[int], Any]) -> Any:
        """Call `request` with the number of the attempt until it succeeds."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                sleep(0.1 * 2 ** (attempt - 1))
            try:
                return request(attempt)
            except Exception as error:  # every file system has its own exceptions
                if (final := self._fatal_error(error)) is not None:
                    raise final from (error if self._shows_cause else None)
                reason = error
        raise ConnectionError(
            f"Reading {self.url} from byte {self.position:,} failed {_ATTEMPTS} times "
            f"({_text(reason)}). Check that the server is running, and try again."
        ) from (reason if self._shows_cause else None)

    def _fatal_error(self, error: Exception) -> OSError | None:
        """Return the final error if another attempt would not help, otherwise None."""
        causes = list(_causes(error))
        statuses = {getattr(cause, "status", None) for cause in causes}
        if statuses & {401, 403} or any(isinstance(cause, PermissionError) for cause in causes):
            return PermissionError(
                f"Access to {self.url} is denied without the right token or key. Check the "
                "arguments headers= and fs=, and try again."
            )
        # For sizes over HTTP, fsspec always raises FileNotFoundError, so its cause decides.
        is_missing = isinstance(error, FileNotFoundError) and (
            error.__cause__ is None or "http" not in self.fs.protocol
        )
        if is_missing or 404 in statuses:
            return FileNotFoundError(
                f"{self.url} does not exist. Check the URL, and whether the shards were written."
            )
        if isinstance(error, UnsupportedOperation):
            return UnsupportedOperation(
                f"The server sent {self.url} completely instead of the requested part. Use a "
                "server that supports Range requests."
            )
        if isinstance(error, EOFError) or 416 in statuses:
            return OSError(
                f"Cannot read {self.url} from byte {self.position:,}: {_text(error)}. "
                "Write the shard again, or download it again."
            )
        return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _text(error: BaseException) -> str:
    *_, root = _causes(error)
    text = re.sub(r"\?[^\s'\")]*", "", str(root))  # the query may contain a token
    return " ".join(text.split()) or type(root).__name__


def _corrupted(stream: ShardStream, at: int) -> OSError:
    first = stream.first_bytes().lstrip()
    for begin, says in _OTHER_FILES.items():
        if first.startswith(begin):
            return OSError(f"{stream.url} is not a plain tar file: {says}.")
    return OSError(
        f"{stream.url} is truncated or corrupted near byte {at:,}. Write or download the shard "
        "again."
    )
