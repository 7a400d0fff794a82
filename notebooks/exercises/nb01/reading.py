"""Checks of notebook 01: what is asked of the storage, and how often each class is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_in_a_file, right
from course_utils.teaching.notebook import data_path

FILE = "pulses.npy"
BLOCKS, BLOCK = 8, 8  # a batch of the block shuffle
FEWER, MORE = 3, 2  # how many times fewer requests, and at most how many times the bytes


@exercise("01.3", title="Ask for whole batches", seconds=120)
def whole_batches(dataset_class: type[Any]) -> Verdict:
    """Judge `__getitems__` on hidden batches: first what it returns, then what it asks for."""
    expect(
        hasattr(dataset_class, "__getitems__"),
        "The class has no __getitems__, so the loader goes on asking for one event at a time.",
        "Spell it with two underscores on each side and an s.",
    )
    expect(
        isinstance(dataset_class, type),
        "This is a dataset, not a class. The check builds its own on a storage that counts.",
        "Hand over the class itself, without parentheses.",
    )
    folder = data_path("events") / "npy"
    offsets = np.load(folder / "offsets.npy")
    pulses = np.load(folder / FILE, mmap_mode="r")
    events = [pulses[a:b] for a, b in pairwise(offsets)]
    storage = slow_storage(folder, "laptop SSD", cache_mb=0)
    dataset = dataset_class(storage, FILE, offsets)
    last = len(events) - 1
    for batch in ([3], [2, 1, 0], [9, 4, 9, 5], [last, 0, last - 1], list(range(40, 9, -3))):
        _judge_events(dataset.__getitems__(list(batch)), batch, events)
    counts = [_judge_requests(dataset, storage, events, seed) for seed in range(3)]
    _judge_workers(dataset_class, storage, offsets, events)
    return right(
        f"{max(counts)} requests for a batch, instead of one for each of {BLOCKS * BLOCK} events."
    )


def block_batch(events: int, seed: int) -> list[int]:
    """Return events of blocks that lie far apart, in random order."""
    rng = np.random.default_rng(seed)
    spacing = events // BLOCKS
    starts = spacing * np.arange(BLOCKS) + rng.integers(spacing // 2, size=BLOCKS)
    batch: list[int] = rng.permutation((starts[:, None] + np.arange(BLOCK)).ravel()).tolist()
    return batch


def _judge_events(found: Any, batch: Sequence[int], events: Sequence[NDArray[np.float32]]) -> None:
    expect(
        isinstance(found, Sequence),
        f"__getitems__ returned {type(found).__name__}; collate_fn wants a list of events.",
        "Return a list with one entry for each number asked for.",
    )
    expect(
        len(found) == len(batch),
        f"Asked for {len(batch)} events, {len(found)} came. A number may be asked for twice, as a "
        "sampler with replacement does.",
        "Read each event once, but hand it out for each number in `indices`.",
    )
    if not _same(found, batch, events):
        expect(
            not _same(found, sorted(batch), events),
            "The events come sorted. The loader believes that event 0 of your list is the first "
            "number it asked for.",
            "End with: return [found[index] for index in indices].",
        )
        expect(
            False,
            "Some events have the pulses of others, or not all of their own.",
            "Compare dataset.__getitems__([5, 6])[1] with dataset[6].",
        )


def _same(found: Sequence[Any], batch: Sequence[int], events: Sequence[NDArray[Any]]) -> bool:
    pairs = zip(found, batch, strict=True)
    return all(np.array_equal(np.asarray(event), events[index]) for event, index in pairs)


def _judge_requests(
    dataset: Any, storage: SlowFileSystem, events: Sequence[NDArray[np.float32]], seed: int
) -> int:
    batch = block_batch(len(events), seed)
    in_order, _ = _read(dataset, storage, sorted(batch), events)
    requests, bytes_read = _read(dataset, storage, batch, events)
    most = len(batch) // FEWER
    expect(
        in_order <= most,
        f"{in_order} requests for {len(batch)} events. The loader calls you once now, but inside "
        "you still ask for one event after the other.",
        "Read neighbours together: self.read(first, last) is one request for all of them.",
    )
    expect(
        requests <= most,
        f"{requests} requests for {len(batch)} events; were they sorted, you would make "
        f"{in_order}. Neighbours are not side by side in a shuffled batch.",
        "Sort the numbers before you look for neighbours.",
    )
    times = bytes_read / sum(events[index].nbytes for index in batch)
    expect(
        times <= MORE,
        f"{requests} requests, but {times:.0f} times the bytes of the events: you read all that "
        "lies between. On a big file that is the whole file for every batch.",
        "Begin a new request where a number is missing.",
    )
    return requests


def _read(
    dataset: Any,
    storage: SlowFileSystem,
    batch: list[int],
    events: Sequence[NDArray[np.float32]],
) -> tuple[int, int]:
    """Return how many requests and how many bytes the dataset needs for `batch`."""
    storage.reset_counters()
    _judge_events(dataset.__getitems__(list(batch)), batch, events)
    counted = storage.counters()
    return counted.requests, counted.bytes_read


def _judge_workers(
    dataset_class: type[Any],
    storage: SlowFileSystem,
    offsets: NDArray[np.int64],
    events: Sequence[NDArray[np.float32]],
) -> None:
    expect_in_a_file(dataset_class)
    batches = [block_batch(len(events), seed) for seed in range(10, 14)]
    loader = DataLoader(
        dataset_class(storage, FILE, offsets),
        batch_sampler=batches,
        num_workers=2,
        collate_fn=list,
        timeout=60,
    )
    for batch, found in zip(batches, loader, strict=True):
        _judge_events(found, batch, events)


@exercise("01.4", title="Find the class imbalance")
def class_imbalance(counts: Mapping[str, int], weights: Sequence[float]) -> Verdict:
    """Judge the numbers of pictures by class, and a weight for each picture."""
    folders = sorted(path for path in data_path("images").iterdir() if path.is_dir())
    wanted = {folder.name: len(list(folder.glob("*.jpg"))) for folder in folders}
    _judge_counts(counts, wanted)
    expect(
        not isinstance(weights, Mapping),
        "A dict has one weight for each class, but the sampler knows no classes. It wants one "
        "weight for each picture, in a list as long as the dataset.",
        "Give every picture the weight of its class, in the order of images.targets.",
    )
    _judge_weights(np.asarray(weights, dtype=float), wanted)
    rare = min(wanted, key=lambda name: wanted[name])
    total, drawn = sum(wanted.values()), sum(wanted.values()) / len(wanted)
    return right(
        f"Each class is drawn equally often. Only {wanted[rare]} of {total:,} pictures show "
        f"{rare}, so each of them is now drawn about {drawn / wanted[rare]:.0f} times an epoch: "
        "balanced, but not new."
    )


def _judge_counts(counts: Any, wanted: Mapping[str, int]) -> None:
    expect(
        isinstance(counts, Mapping) and all(isinstance(name, str) for name in counts),
        "The counts are not a dict from the names of the classes to numbers.",
        "images.classes[target] is the name for a class number.",
    )
    total, found = sum(wanted.values()), sum(counts.values())
    expect(
        found >= total,
        f"You counted {found:,} of {total:,} pictures. ImageFolder sorts by class, so the first "
        "pictures are all of one class, and a part tells little about the whole.",
        "images.targets has the class number of every picture, and opens none.",
    )
    off = [name for name in wanted if counts.get(name) != wanted[name]]
    expect(
        not off and len(counts) == len(wanted),
        f"The count is off for {', '.join(off) or 'a class that is not there'}.",
        "Counter(images.targets) counts class numbers; images.classes has the names.",
    )


def _judge_weights(weights: NDArray[np.float64], wanted: Mapping[str, int]) -> None:
    sizes = np.array(list(wanted.values()))
    first = next(iter(wanted))
    expect(
        weights.shape != sizes.shape,
        f"These are {len(sizes)} weights, one for each class. The sampler takes them for the first "
        f"{len(sizes)} pictures and draws only those, all of class {first}.",
        "Give every picture the weight of its class, in the order of images.targets.",
    )
    expect(
        weights.shape == (sizes.sum(),),
        f"The weights have the shape {weights.shape}; there are {sizes.sum():,} pictures.",
        "Make a list with one weight for each entry of images.targets.",
    )
    sums = np.add.reduceat(weights, np.cumsum([0, *sizes[:-1]]))
    shares = sums / sums.sum()
    expect(
        not np.allclose(shares, sizes / sizes.sum(), rtol=0.01),
        "All pictures weigh the same, so the classes are drawn as often as they occur.",
        "A picture of a class of n gets the weight 1/n.",
    )
    rarest, commonest = sizes.argmin(), sizes.argmax()
    expect(
        shares[rarest] > sizes[rarest] / sizes.sum(),
        "Common classes weigh more: rare pictures are drawn even less often than before.",
        "Divide by the count instead of multiplying by it.",
    )
    expect(
        np.allclose(shares, 1 / len(sizes), rtol=0.01),
        f"The most common class is still drawn {shares[commonest] / shares[rarest]:.1f} times as "
        "often as the rarest.",
        "The weights of the pictures of one class must add up to the same for every class.",
    )
