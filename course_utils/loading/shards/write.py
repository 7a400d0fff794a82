"""Write samples into tar shards for webdataset, with a list of the shards.

    write_shards(event_samples(data_path("events"), seed=1), "shards", per_shard=100)

The list, `shards.json`, is written last, so a folder with a list is complete. It stores the number
of samples, the size and the CRC-32 of each shard. With it, a reader knows the length of an epoch
and detects truncated shards.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain, count, islice
from pathlib import Path, PurePath
from typing import Any

import webdataset

from keepfed.files import replace_file, replacing, writing

LIST = "shards.json"


@dataclass(frozen=True)
class Shard:
    """One shard, with its entries in the list; None if there is no list."""

    url: str  # path, or URL such as http://host/shard-000000.tar
    samples: int | None = None
    bytes: int | None = None
    crc32: int | None = None


def write_shards(
    samples: Iterable[Mapping[str, Any]], folder: str | Path, *, per_shard: int
) -> list[Path]:
    """Write shards of `per_shard` samples (fewer in the last one) and return their paths.

    A sample has a `__key__` and fields named like file extensions. A field contains bytes, or a
    value that webdataset encodes by the extension, such as an array for "npy" or a dictionary for
    "json". The same samples give the same bytes. After an error, no shard remains.

    Raises:
        FileExistsError: If the folder already contains shards.
        ValueError: If there is no sample, or one that would be read back differently: its key is
            unique and without a dot, and its fields are lower case without a leading "_".
    """
    target = Path(folder)
    if per_shard < 1:
        raise ValueError(f"per_shard must be at least 1, but is {per_shard}.")
    if (target / LIST).exists() or any(target.glob("shard-*.tar")):
        raise FileExistsError(
            f"{target} already contains shards. Delete them, or choose a different folder."
        )
    with writing(target):
        target.mkdir(parents=True, exist_ok=True)
        return _write_all(_checked(samples), target, per_shard)


def _write_all(stream: Iterator[Mapping[str, Any]], target: Path, per_shard: int) -> list[Path]:
    shards: list[Shard] = []
    try:
        for number in count():
            if (first := next(stream, None)) is None:
                break
            path = target / f"shard-{number:06d}.tar"
            shards.append(_write(chain([first], islice(stream, per_shard - 1)), path))
        if not shards:
            raise ValueError("There are no samples to write. Check the `samples` argument.")
        replace_file(target / LIST, json.dumps({"shards": list(map(asdict, shards))}, indent=1))
    except BaseException:
        for shard in shards:
            (target / shard.url).unlink(missing_ok=True)
        with suppress(OSError):  # the folder contains other files
            target.rmdir()
        raise
    return [target / shard.url for shard in shards]


def url_of(path: PurePath) -> str:
    """Return a path for webdataset, which would take a drive letter for a URL scheme."""
    text = path.as_posix()
    if not path.drive:
        return text
    return f"file://{text}" if text.startswith("//") else f"file:{text}"


def read_list(text: str | bytes, folder: str) -> list[Shard]:
    """Return the shards of a `shards.json`, with their full URLs.

    Args:
        text: Contents of the file.
        folder: Its folder, without a trailing "/".

    Raises:
        ValueError: If the text is not a complete list of shards.
    """
    try:
        shards = [Shard(**entry) for entry in json.loads(text)["shards"]]
        numbers = [number for shard in shards for number in (shard.samples, shard.bytes)]
        if not shards or not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError("an entry is missing, or is no number")
        if len({shard.url for shard in shards}) < len(shards):
            raise ValueError("a shard is there twice")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise ValueError(
            f"{folder}/{LIST} is not a complete list of shards ({error}). Write the shards again."
        ) from error
    return [replace(shard, url=f"{folder}/{shard.url}") for shard in shards]


def _write(samples: Iterable[Mapping[str, Any]], path: Path) -> Shard:
    """Write one shard under a temporary name, and rename it when it is complete."""
    with replacing(path) as file, webdataset.TarWriter(file, mtime=0) as writer:
        number = 0
        for sample in samples:
            _put(writer, sample)
            number += 1
    content = path.read_bytes()
    return Shard(path.name, number, len(content), zlib.crc32(content))


def _put(writer: webdataset.TarWriter, sample: Mapping[str, Any]) -> None:
    try:
        writer.write(dict(sample))
    except OSError:
        raise
    except Exception as error:  # each encoder has its own errors
        fields = ", ".join(name for name in sample if not name.startswith("__"))
        raise ValueError(
            f"A field of the sample {sample['__key__']!r} ({fields}) cannot be encoded: {error}. "
            "Give bytes, or a value that fits the ending, such as an array for npy."
        ) from error


def _checked(samples: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Refuse samples that a reader would merge, cut or lose; stores all keys."""
    keys = set[Any]()
    for number, sample in enumerate(samples):
        key, fields = sample.get("__key__"), [name for name in sample if name[:2] != "__"]
        problems = {
            "it needs a __key__, a text": not isinstance(key, str) or not key,
            "its key contains a dot, where readers cut it": "." in str(key).rpartition("/")[2],
            "its key was used before": key in keys,
            "it has no field, such as 'npy'": not fields,
            "webdataset ignores fields that begin with _": any(name[0] == "_" for name in fields),
            "readers use lower case for its fields": fields != [name.lower() for name in fields],
        }
        if problem := next((text for text, is_there in problems.items() if is_there), None):
            names = ", ".join(fields)
            raise ValueError(
                f"Sample {number} ({key!r}: {names}) would not be read back: {problem}."
            )
        keys.add(key)
        yield sample
