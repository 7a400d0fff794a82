"""Write samples into tar shards that webdataset reads, with a list of them beside.

    write_shards(event_samples(data_path("events"), seed=1), "shards", per_shard=100)

The list, `shards.json`, is written last: a folder that has it is whole. It says how many samples,
how many bytes and which CRC-32 each shard has, so that a reader knows the length of an epoch, and
knows a shard that lacks a byte from one that has all of them.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain, count, islice
from pathlib import Path, PurePath
from typing import Any

import webdataset

from keepfed.files import replace_file

LIST = "shards.json"


@dataclass(frozen=True)
class Shard:
    """One shard, and what its list says of it; None: there is no list."""

    url: str  # a path, or an address such as http://host/shard-000000.tar
    samples: int | None = None
    bytes: int | None = None
    crc32: int | None = None


def write_shards(
    samples: Iterable[Mapping[str, Any]], folder: str | Path, *, per_shard: int
) -> list[Path]:
    """Write shards of `per_shard` samples (the last one may be smaller) and return their paths.

    A sample has a `__key__`, and fields named by their file endings: bytes as they are, or what
    webdataset encodes by the ending, such as an array as "npy" or a dictionary as "json". The same
    samples give the same bytes. What fails leaves no shard behind.

    Raises:
        FileExistsError: the folder has shards.
        ValueError: there is no sample, or one that would not come back as it is: a key that is
            missing, was there before or has a dot, a field that is not lower case or begins with
            "_", or none. Fields that begin with "__" are webdataset's, and left out.
    """
    target = Path(folder)
    if per_shard < 1:
        raise ValueError(f"{per_shard} samples in a shard cannot be; take at least 1.")
    if (target / LIST).exists() or any(target.glob("shard-*.tar")):
        raise FileExistsError(
            f"{target} has shards already; delete them or take another folder, and run again."
        )
    target.mkdir(parents=True, exist_ok=True)
    stream = _checked(samples)
    shards: list[Shard] = []
    try:
        for number in count():
            if (first := next(stream, None)) is None:
                break
            path = target / f"shard-{number:06d}.tar"
            shards.append(_write(chain([first], islice(stream, per_shard - 1)), path))
        if not shards:
            raise ValueError("There are no samples to write; look at what should give them.")
        replace_file(target / LIST, json.dumps({"shards": list(map(asdict, shards))}, indent=1))
    except BaseException:
        for shard in shards:
            (target / shard.url).unlink(missing_ok=True)
        with suppress(OSError):  # it held something else before
            target.rmdir()
        raise
    return [target / shard.url for shard in shards]


def url_of(path: PurePath) -> str:
    """Return a path as webdataset takes it: a drive letter would pass for the scheme of a URL."""
    text = path.as_posix()
    if not path.drive:
        return text
    return f"file://{text}" if text.startswith("//") else f"file:{text}"


def read_list(text: str | bytes, place: str, query: str = "") -> list[Shard]:
    """Return the shards of a `shards.json` that lies at `place`, with their full addresses.

    Args:
        text: what it says.
        place: its folder, without a "/" at the end; messages tell it.
        query: what each address ends with, such as "?token=..."; no message tells it.

    Raises:
        ValueError: the text is no such list.
    """
    try:
        entries = [Shard(**entry) for entry in json.loads(text)["shards"]]
        whole = all(shard.samples is not None and shard.bytes is not None for shard in entries)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{place}/{LIST} is no list of shards; write the shards again.") from error
    if not entries or not whole:
        raise ValueError(f"{place}/{LIST} does not say what it should; write the shards again.")
    return [Shard(f"{place}/{at.url}{query}", at.samples, at.bytes, at.crc32) for at in entries]


def _write(samples: Iterable[Mapping[str, Any]], path: Path) -> Shard:
    """Write one shard under another name, and give it its own once it is whole."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            counting = _Counted(file)
            with webdataset.TarWriter(counting, mtime=0) as writer:
                number = sum(1 for sample in samples if writer.write(dict(sample)) is not None)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return Shard(path.name, number, counting.bytes, counting.crc32)


class _Counted:
    """A file for writing that knows how many bytes went in, and their CRC-32."""

    def __init__(self, file: Any):
        self.file, self.bytes, self.crc32 = file, 0, 0

    def write(self, data: bytes) -> int:
        self.bytes += len(data)
        self.crc32 = zlib.crc32(data, self.crc32)
        return int(self.file.write(data))


def _checked(samples: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Refuse what a reader would merge, cut or lose; all keys are held to find one that repeats."""
    seen: set[str] = set()
    for number, sample in enumerate(samples):
        key = sample.get("__key__")
        if not isinstance(key, str) or not key:
            raise ValueError(f"Sample {number} has no __key__; give each a text that is its own.")
        if "." in key.rpartition("/")[2]:
            raise ValueError(
                f"The key {key!r} has a dot, and a reader would cut it there; take another sign."
            )
        if key in seen:
            raise ValueError(f"The key {key!r} comes twice; give each sample a key of its own.")
        fields = [field for field in sample if not field.startswith("__")]
        if not fields:
            raise ValueError(f"Sample {key!r} has no field; give it one, such as 'npy'.")
        for field in fields:
            _check_field(field, key)
        seen.add(key)
        yield sample


def _check_field(field: str, key: str) -> None:
    if field.startswith("_"):
        raise ValueError(
            f"The field {field!r} of sample {key!r} begins with _, and webdataset would leave it "
            "out; take another name."
        )
    if field != field.lower():
        raise ValueError(
            f"The field {field!r} of sample {key!r} would come back as {field.lower()!r}; write "
            "it in lower case."
        )
