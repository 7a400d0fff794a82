"""Pipelines of WebDataset as lecture notes print them, in words of our own, and mended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import webdataset as wds
from torchvision import transforms

from course_utils.loading.shards.read import open_shards, read_members


def address(urls: Sequence[str], mended: bool) -> Iterator[int]:
    """Notes 003 and 004: WebDataset opens files, http:, pipe: and some more, but not s3:."""
    if not mended:
        data = wds.WebDataset("s3://my-bucket/train-{000000..000002}.tar", shardshuffle=False)
    else:  # fsspec opens s3:// as well
        shards = wds.SimpleShardList(urls)
        group = wds.tariterators.group_by_keys
        data = wds.DataPipeline(shards, wds.split_by_worker, open_shards, read_members, group)
    yield from (int(sample["cls"]) for sample in data)


def sizes(urls: Sequence[str], mended: bool) -> Iterator[int]:
    """Note 003: a batch is one tensor, so its images need one size; photographs have many."""
    data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple("jpg", "cls")
    if mended:
        data = data.map_tuple(transforms.Resize((32, 32)), int)
    yield from (int(label) for _, labels in data.batched(16) for label in labels)


def no_tensors(urls: Sequence[str], mended: bool) -> Iterator[int]:
    """Note 004: only tensors and arrays are stacked; PIL images stay a list."""
    steps = [transforms.Resize(32), transforms.CenterCrop(32)]
    if mended:
        steps.append(transforms.PILToTensor())
    data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    for images, labels in data.map_tuple(transforms.Compose(steps), int).batched(16):
        print("a batch is a", type(images).__name__, "of", type(images[0]).__name__)
        yield from map(int, labels)


def shard_order(urls: Sequence[str], mended: bool) -> Iterator[int]:
    """Note 003: shardshuffle wants a number, and draws the same order from its seed every time."""
    how = {"shardshuffle": 100, "detshuffle": True, "seed": 1} if mended else {"shardshuffle": True}
    data = wds.WebDataset(urls, **how).decode().to_tuple("cls")
    first, second = ([label for (label,) in data] for epoch in range(2))
    print("the second epoch has the order of the first:", first == second)
    yield from first
