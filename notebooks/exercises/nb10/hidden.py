"""Shards that the checks of notebook 10 make: nobody has seen them before."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import webdataset as wds
from PIL import Image

from course_utils.loading.shards import url_of

SHARDS = 12
PER_SHARD = range(9, 14)  # samples, by turns


@dataclass(frozen=True)
class Shards:
    """Hidden shards: images of many sizes, whose labels count from 0."""

    urls: list[str]
    keys: list[str]
    folder: Path

    @classmethod
    def write(cls, folder: Path) -> Shards:
        """Write them into an empty folder."""
        rng = np.random.default_rng()
        urls: list[str] = []
        keys: list[str] = []
        for shard in range(SHARDS):
            path = folder / f"hidden-{shard:02d}.tar"
            with path.open("wb") as file, wds.TarWriter(file) as writer:
                for _ in range(PER_SHARD[shard % len(PER_SHARD)]):
                    keys.append(f"{len(keys):06d}")
                    label = str(len(keys) - 1).encode()
                    writer.write({"__key__": keys[-1], "jpg": _jpeg(rng), "cls": label})
            urls.append(url_of(path))
        return cls(urls, keys, folder)

    def with_a_cut_one(self) -> list[str]:
        """Return the URLs with one shard that breaks off inside a sample."""
        cut = self.folder / "cut.tar"
        whole = (self.folder / "hidden-03.tar").read_bytes()
        cut.write_bytes(whole[: _inside_a_member(whole)])
        return [*self.urls[:3], url_of(cut), *self.urls[4:]]


def _jpeg(rng: np.random.Generator) -> bytes:
    height, width = rng.integers(9, 24, size=2)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(file, "jpeg")
    return file.getvalue()


def _inside_a_member(whole: bytes) -> int:
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        members = [member for member in archive if member.name.endswith(".jpg")]
    return members[4].offset_data + members[4].size // 2


def small_shards(folder: Path, count: int, *, samples: int = 3) -> dict[str, list[str]]:
    """Write shards of few bytes and return the keys in each, by its URL.

    Args:
        folder: where; shards with other arguments may be there.
        count: number of shards.
        samples: in the smallest; others have one or two more.
    """
    found: dict[str, list[str]] = {}
    for shard in range(count):
        path = folder / f"{samples}-{shard:02d}-of-{count:02d}.tar"
        keys = [f"{shard:02d}{sample:02d}" for sample in range(samples + shard % 3)]
        with path.open("wb") as file, wds.TarWriter(file) as writer:
            for key in keys:
                writer.write({"__key__": key, "txt": key})
        found[url_of(path)] = keys
    return found
