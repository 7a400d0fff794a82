"""Stream samples from tar shards on a disk, a server or an object store, each exactly once.

    stream = stream_shards("shards", decode=decode_event, buffer=500)
    loader = DataLoader(stream, batch_size=64, num_workers=2, collate_fn=pad_collate)
    for epoch in range(3):
        stream.set_epoch(epoch)
        for batch in loader: ...

A shard is read to its last byte, or an error is raised. Reading resumes after a broken connection.
"""

from __future__ import annotations

import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import UnsupportedOperation
from pathlib import Path
from time import sleep
from typing import Any, Unpack

import fsspec
from webdataset.tariterators import group_by_keys

from course_utils.loading.shards.write import LIST, Shard, read_list
from keepfed.errors import unreadable
from keepfed.loaders.stream import ShardedStream, StreamOptions
from keepfed.measure.spans import stage
from keepfed.reading import describe, reading

_REQUEST_BYTES = 4 * 2**20  # size of a request, and the most that a stream buffers
_END_BYTES = 2 * tarfile.BLOCKSIZE  # zeros at the end of a tar file
_ATTEMPTS = 5  # consecutive attempts before a request fails
_AGAIN = "Write or download the shard again"
_CHECK = "Check what is in this sample, and the function that decodes it"
_BY_STATUS = {401: PermissionError, 403: PermissionError, 404: FileNotFoundError, 416: EOFError}
_FINAL = {  # errors that another attempt cannot repair
    PermissionError: "Access to {url} is denied without the right token or key. Check the "
    "arguments headers= and fs=, and try again.",
    FileNotFoundError: "{url} does not exist. Check the URL, and whether the shards were written.",
    NotADirectoryError: "{url} is below a file. Pass a folder, or a list of shards.",
    UnsupportedOperation: "The server sent {url} completely instead of the requested part. Use a "
    "server that supports Range requests.",
    EOFError: "Cannot read {url} from byte {position:,}: {cause}. Write the shard again, or "
    "download it again.",
}


class TarStream(ShardedStream[Any, Shard]):
    """Samples of tar shards, shuffled as bytes and then decoded."""

    def __init__(
        self,
        urls: str | Path | Sequence[str | Path],
        *,
        fs: Any = None,
        headers: Mapping[str, str] | None = None,
        decode: Callable[[dict[str, Any]], Any] | None = None,
        **options: Unpack[StreamOptions],
    ):
        """Read the list of the shards, but no sample.

        Args:
            urls: Folder or URL of a folder that `write_shards` wrote, or a list of shards. A folder
                contains a list with the length and checksum of each shard. All shards are on one
                storage.
            fs: fsspec file system of the shards, such as `slow_storage(...)` or
                `fsspec.filesystem("s3", ...)`. None: chosen by the URL, or the local disk.
            headers: HTTP headers of every request, such as a token.
            decode: Function from a sample (a dictionary of bytes) to its final form:
                `decode_event`, or any function that a worker can import. None: no decoding.
            options: `shuffle_shards`, `buffer`, `seed` and `slot`; see `ShardedStream`. The buffer
                contains bytes, which are decoded afterwards.

        Raises:
            FileNotFoundError: If the folder has no shards.
            ValueError: If `urls` is empty or `buffer` is less than 1.
        """
        self.fs, self.headers, self.decode = fs, headers, decode
        super().__init__(_find(urls, fs, headers), **options)

    def __iter__(self) -> Iterator[Any]:
        drawn = super().__iter__()
        return map(self._decode, drawn) if self.decode else drawn

    def _decode(self, sample: dict[str, Any]) -> Any:
        with reading(sample["__url__"], sample["__key__"], step=_CHECK):
            return self.decode(sample) if self.decode else sample

    def read(self, shards: Sequence[Shard]) -> Iterator[Any]:
        """Yield samples of bytes, shard by shard."""
        for shard in shards:
            keys = set[str]()
            files = read_files(shard, self.fs, self.headers)
            for sample in group_by_keys(files, handler=partial(_refuse, shard.url)):
                if (key := sample["__key__"]) in keys:
                    problem = f"the files of sample {key!r} are not next to each other"
                    raise unreadable(shard.url, problem, "Write it again with `tar --sort=name`")
                keys.add(key)
                yield sample
            if shard.samples not in (None, len(keys)):
                problem = f"it has {len(keys):,} samples, and its list says {shard.samples:,}"
                raise unreadable(shard.url, problem, _AGAIN)

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


def _refuse(url: str, error: Exception) -> bool:
    raise unreadable(url, "a sample has two files of one name", _AGAIN) from error


stream_shards = TarStream  # reads like the other half of `write_shards`


def _find(
    urls: str | Path | Sequence[str | Path], fs: Any, headers: Mapping[str, str] | None
) -> list[Shard]:
    if isinstance(urls, str | Path):
        folder = str(urls).rstrip("/")
        return read_list(ShardStream(Shard(f"{folder}/{LIST}"), fs, headers).read(), folder)
    if not urls:
        raise ValueError("There are no shards to stream. Pass their paths or their folder.")
    return [Shard(str(url)) for url in urls]


def read_files(
    shard: Shard, fs: Any = None, headers: Mapping[str, str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the files of a shard, in the format for webdataset's `group_by_keys`.

    Raises:
        OSError: If the shard is truncated, corrupted, or differs from its entry in the list.
            Python's tarfile ends silently if it cannot read a header, or if the end is missing.
    """
    stream = ShardStream(shard, fs, headers)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:  # type: ignore[call-overload]
            for member in archive:
                if member.isreg():
                    data = archive.extractfile(member).read()
                    yield {"fname": member.name, "data": data, "__url__": shard.url}
                archive.members = []  # otherwise tarfile keeps all members
        end = stream.rest(archive.offset)
    except tarfile.TarError as error:
        problem = f"it is truncated or corrupted near byte {stream.position:,}"
        problem = describe(stream.head, "shard.tar") or problem
        raise unreadable(stream.url, problem, _AGAIN) from error
    if len(end) < _END_BYTES:
        problem = f"it is truncated or corrupted near byte {archive.offset:,}"
        raise unreadable(stream.url, problem, _AGAIN)
    if any(end):
        problem = f"there are data behind its end at byte {archive.offset:,}, or it is corrupted"
        raise unreadable(stream.url, problem, _AGAIN)
    if shard.crc32 not in (None, stream.crc32):
        raise unreadable(stream.url, "it has changed, because its CRC-32 is wrong", _AGAIN)


class ShardStream:
    """Bytes of one shard from first to last, read with few large requests."""

    def __init__(self, shard: Shard, fs: Any, headers: Mapping[str, str] | None):
        """Request the size of the shard if it is unknown."""
        self.url, _, _ = shard.url.partition("?")  # messages must not show a token
        self.fs, self.path = _locate(shard.url, fs, headers)
        self.position = 0  # bytes returned
        self.crc32 = 0  # checksum of these bytes
        self._ahead = memoryview(b"")
        self._last = self.head = b""
        self.size: int = self._retry(self._ask_size) if shard.bytes is None else shard.bytes

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
        self.head = self.head or data[:32]
        self.crc32 = zlib.crc32(data, self.crc32)
        self._last = data or self._last
        return data

    def rest(self, offset: int) -> bytes:
        """Return all bytes from `offset`, which must be in the last block returned or later."""
        held = self.position - offset
        given = self._last[-held:] if held > 0 else b""
        return given + self.read()

    def _request(self) -> bytes:
        start, stop = self.position, min(self.size, self.position + _REQUEST_BYTES)
        with stage("read"):
            data: bytes = self.fs.cat_file(self.path, start=start, end=stop)
        if len(data) > stop - start:
            raise UnsupportedOperation
        if not data:
            raise EOFError(f"the file ends there, but should have {self.size:,} bytes")
        return data

    def _ask_size(self) -> int:
        size = self.fs.info(self.path)["size"]
        if size is None:
            raise EOFError("the server does not report its size")
        return int(size)

    def _retry(self, request: Callable[[], Any]) -> Any:
        """Call `request` until it succeeds. Errors do not show their causes, which name the URL."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                sleep(0.1 * 2 ** (attempt - 1))
            try:
                return request()
            except Exception as error:  # every file system has its own exceptions
                cause, kind = _text(error), self._final(error)
                if kind:
                    text = _FINAL[kind].format(url=self.url, position=self.position, cause=cause)
                    raise (OSError if kind is EOFError else kind)(text) from None
        raise ConnectionError(
            f"Reading {self.url} from byte {self.position:,} failed {_ATTEMPTS} times ({cause}). "
            "Check that the server is running, and try again."
        )

    def _final(self, error: Exception) -> type[Exception] | None:
        """Return the kind of an error that another attempt cannot repair, otherwise None."""
        causes = list(_causes(error))
        if "http" in self.fs.protocol and len(causes) > 1:
            del causes[0]  # for sizes, fsspec raises FileNotFoundError whatever has happened
        for cause in causes:
            by_status = _BY_STATUS.get(getattr(cause, "status", 0))
            for kind in _FINAL:
                if kind is by_status or isinstance(cause, kind):
                    return kind
        return None


def _locate(url: str, fs: Any, headers: Mapping[str, str] | None) -> tuple[Any, str]:
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


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _text(error: BaseException) -> str:
    *_, root = _causes(error)
    text = re.sub(r"\?[^\s'\")]*", "", str(root))  # the query may contain a token
    return " ".join(text.split()) or type(root).__name__
