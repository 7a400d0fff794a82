"""Answers to the exercises of notebook 10, right and wrong, importable by workers."""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import webdataset as wds
from torch.utils.data import DataLoader, IterableDataset
from torchvision import transforms as T
from torchvision.transforms import v2

from notebooks.exercises.nb10 import printed as printed
from notebooks.exercises.nb10.printed import PRINTED

Six = dict[str, Callable[..., Any]]
_SMALL = T.Compose([T.Resize((16, 16)), T.ToTensor()])


def labels(urls: Any) -> Any:
    data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls").batched(16)
    return DataLoader(data, batch_size=None)


def images(urls: Any) -> Any:
    data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    return data.map_tuple(_SMALL, int).batched(16)


def epoch(urls: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=100, detshuffle=True).to_tuple("__key__")


def mixed(urls: Any, decode: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=100).shuffle(1000).map(decode)


def cached(urls: Any, folder: str) -> Any:
    os.makedirs(folder, exist_ok=True)
    return wds.WebDataset(urls, shardshuffle=False, cache_dir=folder, cache_size=10**9)


def complete(urls: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=False)


MENDED: Six = {f.__name__: f for f in (labels, images, epoch, mixed, cached, complete)}
AS_PRINTED: Six = {f.__name__: f for f in PRINTED}


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = name
    return function


def with_one(name: str, function: Callable[..., Any]) -> list[Callable[..., Any]]:
    """Return the six with all mended but one."""
    return list({**MENDED, name: _named(name, function)}.values())


def torch_makes_the_batches(urls: Any) -> Any:
    """Right too: no batches in the pipeline."""
    return DataLoader(wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls"), 16)


def batches_of_batches(urls: Any) -> Any:
    data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls").batched(16)
    return DataLoader(data, batch_size=2, drop_last=True)


def drops_the_last(urls: Any) -> Any:
    data = wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("cls")
    return DataLoader(data.batched(16, partial=False), batch_size=None)


def torchrgb_resized(urls: Any) -> Any:
    """Right too: torchvision's v2 resizes tensors."""
    data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple("jpg", "cls")
    return data.map_tuple(v2.Resize((16, 16)), int).batched(16)


def many_sizes(urls: Any) -> Any:
    data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    return data.map_tuple(T.ToTensor(), int).batched(16)


def no_tensors(urls: Any) -> Any:
    data = wds.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg", "cls")
    return data.map_tuple(T.Resize((16, 16)), int).batched(16)


def draws_that_end(urls: Any) -> Any:
    count = 135  # about as many as there are
    return wds.WebDataset(urls, resampled=True).with_epoch(count).to_tuple("__key__")


def samples_are_mixed(urls: Any) -> Any:
    """Right too: the samples have another order each time."""
    return wds.WebDataset(urls, shardshuffle=False).shuffle(1000).to_tuple("__key__")


def one_seed(urls: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=100).to_tuple("__key__")


def same_order(urls: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=False).to_tuple("__key__")


def not_mixed(urls: Any, decode: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=100).map(decode)


def not_decoded(urls: Any, decode: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=100).shuffle(1000)


def never_evicts(urls: Any, folder: str) -> Any:
    os.makedirs(folder, exist_ok=True)
    return wds.WebDataset(urls, shardshuffle=False, cache_dir=folder)


def no_cache(urls: Any, folder: str) -> Any:
    return wds.WebDataset(urls, shardshuffle=False)


def ignores(urls: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=False, handler=wds.ignore_and_continue)


def unchanged(name: str) -> Callable[..., Any]:
    return getattr(printed, name)  # type: ignore[no-any-return]


# --- 10.2: shards for workers on ranks


def about_256_mb(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    """Right."""
    places = max(1, workers) * ranks
    return places * max(1, round(samples * sample_mb / places / 256))


def about_500_mb(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    """Right, and larger."""
    places = max(1, workers) * ranks
    return places * max(1, int(samples * sample_mb / places / 500))


def by_size_only(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    return max(1, round(samples * sample_mb / 256))


def one_each(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    return max(1, workers) * ranks


def forgets_the_ranks(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    places = max(1, workers)
    return places * max(1, round(samples * sample_mb / places / 256))


def zero_workers(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    places = workers * ranks
    return places * max(1, round(samples * sample_mb / 256 / max(1, places)))


def many(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    return max(1, workers) * ranks * 1000


def not_whole(samples: int, sample_mb: float, workers: int, ranks: int) -> float:
    return about_256_mb(samples, sample_mb, workers, ranks) * 1.0


def at_least_four_each(samples: int, sample_mb: float, workers: int, ranks: int) -> int:
    places = max(1, workers) * ranks
    return places * max(4, round(samples * sample_mb / places / 256))


# --- 10.3: every sample once


def _shuffled(urls: list[str], seed: Any) -> list[str]:
    return [urls[at] for at in np.random.default_rng(seed).permutation(len(urls))]


def _pipeline(urls: list[str], **options: Any) -> Any:
    given = {"shardshuffle": False, "nodesplitter": None, "empty_check": False, **options}
    return wds.WebDataset(urls, **given)


def once(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    """Right."""
    return _pipeline(_shuffled(urls, epoch)[rank::world_size]).shuffle(100)


def webdataset_shuffles(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    """Right too: the shares stay, the order in each changes."""
    return _pipeline(urls[rank::world_size], shardshuffle=100)


def no_ranks(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(_shuffled(urls, epoch))


def asks_torch(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(_shuffled(urls, epoch), nodesplitter=wds.split_by_node)


def divides_twice(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    mine = _shuffled(urls, epoch)[rank::world_size]
    return _pipeline(mine, nodesplitter=wds.split_by_node)


def forgets_torchrun(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    mine = _shuffled(urls, epoch)[rank::world_size]
    return wds.WebDataset(mine, shardshuffle=False, empty_check=False)


def no_workers(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(_shuffled(urls, epoch)[rank::world_size], workersplitter=None)


def seed_of_the_rank(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(_shuffled(urls, (epoch, rank))[rank::world_size])


def draws(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(urls[rank::world_size], resampled=True)


def draws_an_epoch(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(urls, resampled=True).with_epoch(10)


def always_the_same(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(urls[rank::world_size])


def mixes_samples_only(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(urls[rank::world_size]).shuffle(100)


def checks_for_empty(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _pipeline(_shuffled(urls, epoch)[rank::world_size], empty_check=True)


def loses_the_tail(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    size = len(urls) // world_size
    return _pipeline(_shuffled(urls, epoch)[rank * size : (rank + 1) * size])


def gives_tuples(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return once(urls, epoch, rank, world_size).to_tuple("txt")


class _Every(IterableDataset[Any]):
    """Reads all, and serves every n-th."""

    def __init__(self, data: Any, first: int, step: int):
        self.data, self.first, self.step = data, first, step

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.data), self.first, None, self.step)


def divides_samples(urls: list[str], epoch: int, rank: int, world_size: int) -> Any:
    return _Every(_pipeline(_shuffled(urls, epoch)), rank, world_size)
