"""What exercise 10.1 asks of each of its six snippets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import webdataset as wds

from notebooks.exercises.nb10.hidden import Shards

Attempt = Callable[..., Any]


class Fault(Exception):
    """What is wrong with a snippet, and what to do next."""

    def __init__(self, misconception: str, next_step: str):
        super().__init__(misconception)
        self.misconception, self.next_step = misconception, next_step


def _expect(holds: object, misconception: str, next_step: str) -> None:
    if not holds:
        raise Fault(misconception, next_step)


HINTS = {
    "labels": "Batches that are made already need DataLoader(data, batch_size=None).",
    "images": "ToTensor takes PIL images: decode('pil'). And images of one batch have one size: "
    "put T.Resize((32, 32)) before it, with T.Compose.",
    "epoch": "An epoch needs no resampled: WebDataset(urls, shardshuffle=100, detshuffle=True).",
    "mixed": "Swap two stages: first .shuffle(1000), then .map(decode).",
    "cached": "webdataset makes no folder: os.makedirs(folder, exist_ok=True) comes first.",
    "complete": "Leave the handler out: then errors are raised.",
}


def _judge_labels(attempt: Attempt, shards: Shards) -> None:
    found: list[int] = []
    for batch in _some(attempt(shards.urls), shards):
        numbers = torch.as_tensor(_only(batch))
        _expect(
            numbers.ndim == 1,
            f"a batch of labels has the shape {tuple(numbers.shape)}. A DataLoader makes batches "
            "of what it gets, and it gets batches.",
            HINTS["labels"],
        )
        found += numbers.tolist()
    _expect_each_once(found, range(len(shards.keys)))


def _only(batch: Any) -> Any:
    return batch[0] if isinstance(batch, list | tuple) and len(batch) == 1 else batch


def _judge_images(attempt: Attempt, shards: Shards) -> None:
    found: list[int] = []
    for pixels, numbers in _some(attempt(shards.urls), shards):
        _expect(
            torch.is_tensor(pixels),
            f"a batch of images is a {type(pixels).__name__}, not a tensor.",
            "Let ToTensor stay: PIL images of one size go in, a tensor comes out.",
        )
        _expect(
            pixels.ndim == 4 and pixels.shape[1] == 3 and pixels.is_floating_point(),
            f"a batch of images is {pixels.dtype} of shape {tuple(pixels.shape)}; wanted is float "
            "of (images, 3, height, width).",
            HINTS["images"],
        )
        found += torch.as_tensor(numbers).tolist()
    _expect_each_once(found, range(len(shards.keys)))


def _judge_epoch(attempt: Attempt, shards: Shards) -> None:
    count = len(shards.keys)
    data = attempt(shards.urls)
    first, second = ([_key(item) for item in _some(data, shards)] for _ in range(2))
    distinct = len(set(first))
    _expect(
        len(first) <= 2 * count,
        f"after {len(first):,} of {count} samples there is no end. resampled draws shards with "
        "replacement, for ever: there is no epoch.",
        HINTS["epoch"],
    )
    _expect(
        distinct == count or len(first) < count,
        f"{len(first)} samples are served, {distinct} of {count} are distinct. with_epoch ends "
        "the draws; they are still draws with replacement.",
        HINTS["epoch"],
    )
    _expect_each_once(first, shards.keys)
    _expect(
        first != second,
        "two epochs have the same order. shardshuffle alone draws a seed when the pipeline is "
        "made, and uses it again in every epoch.",
        "detshuffle=True beside shardshuffle=100 counts the epochs.",
    )


def _judge_mixed(attempt: Attempt, shards: Shards) -> None:
    decoded: list[str] = []

    def decode(sample: Any) -> Any:
        decoded.append(_key(sample))
        return sample

    served = iter(attempt(shards.urls, decode))
    first = _key(next(served))
    held = len(decoded)
    _expect(
        held <= 16,
        f"{held} samples are decoded before the first is served: the buffer holds images, not "
        "files, and an image takes many times the bytes of its file.",
        HINTS["mixed"],
    )
    _expect_each_once([first, *map(_key, islice(served, 2 * len(shards.keys)))], shards.keys)
    expected = len(decoded) == len(shards.keys)
    _expect(
        expected, "not every sample goes through decode.", "Keep .map(decode), as the last stage."
    )
    alone = [_key(item) for item in _some(attempt(shards.urls[:1], decode), shards)]
    _expect(
        alone != sorted(alone),
        "the samples of a shard come in their order on disk: nothing mixes them any more.",
        HINTS["mixed"],
    )


def _judge_cached(attempt: Attempt, shards: Shards) -> None:
    folder = shards.folder / "not" / "there"
    data = attempt(shards.urls, str(folder))
    caches = [stage for stage in data.pipeline if isinstance(stage, wds.cache.FileCache)]
    _expect(
        caches and Path(caches[0].cache_dir) == folder,
        "nothing is kept in that folder.",
        "Keep cache_dir=folder, and make the folder first.",
    )
    _expect(
        caches[0].cleaner is not None,
        "the folder may grow without end: cache_size is -1, and then nothing is ever removed.",
        "Say how many bytes it may hold: cache_size=10**10.",
    )
    _expect_each_once([_key(item) for item in _some(data, shards)], shards.keys)


def _judge_complete(attempt: Attempt, shards: Shards) -> None:
    _expect_each_once([_key(item) for item in _some(attempt(shards.urls), shards)], shards.keys)
    try:
        served = len(list(_some(attempt(shards.with_a_cut_one()), shards)))
    except Exception:
        return  # whatever is raised, somebody is told
    _expect(
        False,
        f"a shard breaks off, and {served} of {len(shards.keys)} samples are served as if all were "
        "well: the epoch is shorter, and nobody is told.",
        HINTS["complete"],
    )


JUDGES = (
    _judge_labels,
    _judge_images,
    _judge_epoch,
    _judge_mixed,
    _judge_cached,
    _judge_complete,
)


def _some(data: Iterable[Any], shards: Shards) -> Iterable[Any]:
    """Take no more than three epochs: a pipeline may have no end."""
    return islice(data, 3 * len(shards.keys))


def _key(item: Any) -> str:
    return str(item["__key__"] if isinstance(item, dict) else _only(item))


def _expect_each_once(found: Sequence[Any], wanted: Iterable[Any]) -> None:
    wanted = list(wanted)
    _expect(
        sorted(found) == wanted,
        f"{len(found)} samples are served, {len(set(found))} distinct; there are {len(wanted)}.",
        "Every sample once: drop no batch, and draw nothing twice.",
    )
