"""Shards as lecture notes write and share them, in words of our own, and mended."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import webdataset as wds
from torch.utils.data import DataLoader

from course_utils.loading.shards import stream_shards, write_shards


def workers(urls: Sequence[str], mended: bool) -> Iterator[int]:
    """Notes 003 and 004: a worker reads whole shards, so one shard is work for one of them."""
    data = wds.WebDataset(urls if mended else urls[:1], shardshuffle=False)
    loader = DataLoader(data, batch_size=None, num_workers=2)
    yield from (int(sample["cls"]) for sample in loader)


def writer(urls: Sequence[str], mended: bool) -> Iterator[int]:
    """Note 004: TarWriter writes one file, whatever its name; write_shards begins new ones."""
    samples = wds.WebDataset(urls, shardshuffle=False)
    with tempfile.TemporaryDirectory() as room:
        if mended:
            shards = write_shards(samples, Path(room) / "shards", per_shard=8)
        else:
            shards = [Path(room) / "shard-000000.tar"]
            with shards[0].open("wb") as file, wds.TarWriter(file) as sink:
                for sample in samples:
                    sink.write(sample)
        print(len(shards), "shard(s): work for as many workers")
        yield from (int(sample["cls"]) for sample in stream_shards(shards))
