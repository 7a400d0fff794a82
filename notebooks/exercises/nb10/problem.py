"""What notebook 10 gives: the six snippets as it prints them, and the data sets that it shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import webdataset as wds
from torch.utils.data import DataLoader
from torchvision import transforms as T

from course_utils.words import plural

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


@dataclass(frozen=True)
class DataSet:
    """A data set, and who reads it."""

    samples: int
    sample_mb: float
    workers: int  # of each rank; 0: the rank reads by itself
    ranks: int

    @property
    def places(self) -> int:
        """How many read at once."""
        return max(1, self.workers) * self.ranks

    @property
    def mb(self) -> float:
        """The size of all samples."""
        return self.samples * self.sample_mb

    def __str__(self) -> str:
        """Say it in words."""
        return (
            f"{self.samples:,} samples of {self.sample_mb:g} MB, {plural(self.workers, 'worker')} "
            f"on each of {plural(self.ranks, 'rank')}"
        )


SHOWN = {
    "ImageNet": DataSet(1_281_167, 0.11, 8, 8),
    "telescope": DataSet(2_000_000, 0.002, 4, 1),
    "volumes": DataSet(168, 140, 2, 4),
    "laptop": DataSet(50_000, 0.01, 0, 1),
}
