"""Small hidden shards, which a check may cut off."""

import gc
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain, islice
from pathlib import Path
from typing import Any

import webdataset as wds

from course_utils.exercises.judging import serve
from course_utils.exercises.judging.compare import short
from course_utils.loading.shards import url_of

# where a shard breaks off: index of the last file of the archive, and bytes of its content
CUTS = {
    "breaks off inside a file": (-1, 2),
    "breaks off between two samples": (-2, None),
    "breaks off between two files of a sample": (-1, None),
}
ERROR, ONCE, ENDLESS = "an error", "each sample once", "no end"


class HiddenShards:
    """Shards of at least `samples` samples with two files each, a few bytes long."""

    def __init__(self, folder: Path, count: int, *, samples: int = 3):
        self.keys, self._paths = dict[str, list[str]](), list[Path]()  # keys by URL
        for shard in range(count):
            path = folder / f"{samples}-{shard:02d}-of-{count:02d}.tar"
            keys = [f"{shard:02d}{sample:02d}" for sample in range(samples + shard % 3)]
            with path.open("wb") as file, wds.TarWriter(file) as writer:
                for key in keys:
                    writer.write({"__key__": key, "cls": key, "txt": key})
            self.keys[url_of(path)] = keys
            self._paths.append(path)
        self.urls, self.samples = [*self.keys], [*chain(*self.keys.values())]
        self.shard_of = {key: url for url, keys in self.keys.items() for key in keys}
        self.enough = 2 * len(self.samples) + 1  # items after which a stream counts as endless

    @contextmanager
    def cut(self, where: str, shards: slice = slice(1, 2)) -> Iterator[None]:
        """Let some shards break off within this block."""
        file, bytes_left = CUTS[where]
        before = {path: path.read_bytes() for path in self._paths[shards]}
        for path, content in before.items():
            with tarfile.open(path) as archive:
                member = archive.getmembers()[file]
            end = member.offset if bytes_left is None else member.offset_data + bytes_left
            path.write_bytes(content[:end])
        try:
            yield
        finally:
            for path, content in before.items():
                path.write_bytes(content)

    def read(self, stream: Iterable[Any]) -> list[Any]:
        """Return the items of a stream, but no more than needed to know that it never ends."""
        return [*islice(stream, self.enough)]

    def order(self, stream: Iterable[Any]) -> list[str]:
        """Return the shards in the order in which a stream serves their first samples."""
        return [*dict.fromkeys(self.shard_of[str(key_of(item))] for item in self.read(stream))]

    def describe(self, items: Sequence[Any]) -> str:
        """Return in words which of the samples were served."""
        keys = {*self.samples}.intersection(filter(None, map(key_of, items)))
        if len(items) == self.enough:
            return ENDLESS
        if items and not keys:
            return f"{len(items)} items such as {short(items[0])}"
        if len(items) == len(keys) == len(self.samples):
            return ONCE
        return f"{len(items)} samples, {len(keys)} different ones of {len(self.samples)}"

    def outcome(self, make: Callable[[], Iterable[Any]]) -> str:
        """Return in words which samples a stream serves, or that it raises an error."""
        try:
            return self.describe(self.read(make()))
        except Exception:  # any error tells the program that samples are missing
            return ERROR

    def in_two_workers(self, stream: Iterable[Any]) -> str:
        """Return in words which samples two workers serve together."""
        if iter(stream) is stream:  # workers cannot get an iterator
            return ONCE
        served = serve([stream], 2, lambda one: self.read(deepcopy(one)))
        return self.describe([*chain(*served.values())])

    def after_the_first(self, make: Callable[[], Iterable[Any]]) -> str:
        """Return the outcome if all shards break off once the first sample was served."""

        def items() -> Iterator[Any]:
            stream = iter(make())
            yield next(stream)
            with self.cut("breaks off between two samples", slice(None)):
                yield from stream

        return self.outcome(items)


def key_of(item: Any) -> str | None:
    """Return the key of a sample, or of a tuple that contains only the key."""
    if isinstance(item, dict):
        item = item.get("__key__")
    elif isinstance(item, list | tuple) and len(item) == 1:
        (item,) = item
    return item if isinstance(item, str) else None


@contextmanager
def shard_folder() -> Iterator[Path]:
    """Yield a temporary folder, and hide the warnings of WebDataset, which leaves files open."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        warnings.catch_warnings(action="ignore"),
    ):
        try:
            yield Path(folder)
        finally:
            gc.collect()
