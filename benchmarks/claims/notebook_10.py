"""Count or measure the claims of notebook 10."""

import io
import tarfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import webdataset as wds
from torch.utils.data import DataLoader

from course_utils.exercises.nb10.hidden import HiddenShards, shard_folder
from course_utils.hardware.storage import VirtualClock, counting_storage, slow_storage
from course_utils.loading.events import NpzEvents
from course_utils.loading.shards import event_samples, stream_shards, write_shards
from course_utils.teaching.notebook import data_path

FEW = 200  # events, if the ratio does not depend on their number


def requests_for_files_over_shards() -> float:
    """Return the requests for reading events from files, relative to 2 shards."""
    events = data_path("events", "S")
    with shard_folder() as folder:
        samples = islice(event_samples(events), FEW)
        write_shards(samples, folder / "shards", per_shard=FEW // 2)
        requests = []
        for place, read in (
            (events, lambda fs: map(NpzEvents(events, fs=fs).__getitem__, range(FEW))),
            (folder / "shards", lambda fs: stream_shards(folder / "shards", fs=fs)),
        ):
            requests.append(_requests(place, read))
    return requests[0] / requests[1]


def _requests(folder: Path, read: Callable[[Any], Any]) -> int:
    """Count the requests for samples, without those for labels and lists."""
    storage = slow_storage(folder, "S3")
    VirtualClock(storage)
    samples = read(storage)
    storage.reset_counters()
    assert sum(1 for _ in samples) == FEW
    return storage.counters().requests


def shards_opened_half_way() -> list[int]:
    """Return how many of 3 shards WebDataset and our reader open for half of the first one."""
    with shard_folder() as folder:
        paths = write_shards(_numbers(60), folder, per_shard=20)
        storage = counting_storage(folder)
        ours = stream_shards(folder, fs=storage, buffer=1, shuffle_shards=False)
        storage.reset_counters()
        list(islice(ours, 10))
        opened: list[str] = []

        def note(urls: Any) -> Iterator[Any]:
            for url in urls:
                opened.append(url["url"])
                yield url

        shards = wds.SimpleShardList([str(path) for path in paths])
        list(islice(wds.DataPipeline(shards, note, wds.tarfile_to_samples()), 10))
    return [len(opened), storage.counters().requests]


def _numbers(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {"__key__": f"{number:06d}", "bin": np.full(5_000, number, np.uint8).tobytes()}


def what_webdataset_says_to_s3() -> list[str]:
    """Return the end of the error message for an s3:// URL."""
    try:
        next(iter(wds.WebDataset("s3://bucket/shard.tar", shardshuffle=False)))
    except ValueError as error:
        return [str(error).rpartition(": ")[2]]
    return []


def samples_of_a_shard_cut_between_two() -> int:
    """Return how many of 10 samples half a tar file yields without an error."""
    with shard_folder() as folder:
        (path,) = write_shards(_numbers(10), folder, per_shard=10)
        with tarfile.open(path) as archive:
            middle = archive.getmembers()[5].offset
        whole = path.read_bytes()
        with tarfile.open(fileobj=io.BytesIO(whole[:middle]), mode="r|") as archive:
            return sum(1 for _ in archive)


def orders_of_shards() -> int:
    """Count the orders that shardshuffle gives in five epochs of one pipeline."""
    with shard_folder() as folder:
        pipeline = wds.WebDataset(HiddenShards(folder, 12).urls, shardshuffle=100)
        return len({tuple(sample["__key__"] for sample in pipeline) for _ in range(5)})


def orders_with_detshuffle() -> list[int]:
    """Count the orders in three epochs with new workers, and with persistent ones."""
    with shard_folder() as folder:
        urls = HiddenShards(folder, 12).urls
        return [len(set(_orders(urls, persistent))) for persistent in (False, True)]


def _orders(urls: list[str], persistent: bool) -> list[tuple[str, ...]]:
    pipeline = wds.WebDataset(urls, shardshuffle=100, detshuffle=True).to_tuple("__key__")
    loader = DataLoader(pipeline, None, num_workers=1, persistent_workers=persistent)
    return [tuple(key for (key,) in loader) for _ in range(3)]


def caches_that_are_limited() -> int:
    """Count the caches in a pipeline with a cache_dir that remove anything."""
    with shard_folder() as folder:
        urls = HiddenShards(folder, 2).urls
        stages = wds.WebDataset(urls, shardshuffle=False, cache_dir=str(folder)).pipeline
        caches = [stage for stage in stages if isinstance(stage, wds.cache.FileCache)]
        assert caches
        return sum(stage.cleaner is not None for stage in caches)
