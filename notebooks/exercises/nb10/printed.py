"""The six snippets of exercise 10.1 as notebook 10 prints them: each has something wrong.

Attempts are compared with them: what is still as printed is not attempted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import webdataset as wds
from torch.utils.data import DataLoader
from torchvision import transforms as T

Urls = Sequence[str]


def labels(urls: Urls) -> Any:
    """Give batches of 16 labels."""
    data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls").batched(16)
    return DataLoader(data)


def images(urls: Urls) -> Any:
    """Give batches of images and labels."""
    data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple("jpg", "cls")
    return data.map_tuple(T.ToTensor(), int).batched(16)


def epoch(urls: Urls) -> Any:
    """Give the keys of an epoch, in another order each time."""
    return wds.WebDataset(urls, resampled=True, shardshuffle=False).to_tuple("__key__")


def mixed(urls: Urls, decode: Callable[[Any], Any]) -> Any:
    """Give decoded samples, mixed."""
    return wds.WebDataset(urls, shardshuffle=100).map(decode).shuffle(1000)


def cached(urls: Urls, folder: str) -> Any:
    """Give samples, and keep the shards in a folder."""
    return wds.WebDataset(urls, shardshuffle=False, cache_dir=folder)


def complete(urls: Urls) -> Any:
    """Give all samples, or an error."""
    return wds.WebDataset(urls, shardshuffle=False, handler=wds.warn_and_continue)


PRINTED: tuple[Callable[..., Any], ...] = (labels, images, epoch, mixed, cached, complete)
