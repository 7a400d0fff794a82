"""Where hidden shards are made and read: a folder that goes, and shards of few bytes."""

import gc
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import webdataset as wds

from course_utils.loading.shards import url_of


@contextmanager
def room() -> Iterator[Path]:
    """Yield an empty folder; WebDataset leaves its files open, and complains of that in here."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        warnings.catch_warnings(action="ignore"),
    ):
        yield Path(folder)
        gc.collect()


def small_shards(folder: Path, count: int, *, samples: int = 3) -> dict[str, list[str]]:
    """Write shards of few bytes, the smallest of so many samples; return keys by URL."""
    found: dict[str, list[str]] = {}
    for shard in range(count):
        path = folder / f"{samples}-{shard:02d}-of-{count:02d}.tar"
        keys = [f"{shard:02d}{sample:02d}" for sample in range(samples + shard % 3)]
        with path.open("wb") as file, wds.TarWriter(file) as writer:
            for key in keys:
                writer.write({"__key__": key, "txt": key})
        found[url_of(path)] = keys
    return found
