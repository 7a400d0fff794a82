"""Exercise 01.3: what a dataset asks of the storage for a batch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_exercises.judging import loader
from course_utils.hardware.storage import SlowFileSystem, slow_storage
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from course_utils.teaching.notebook import data_path
from keepfed.formatting import plural

Events = Sequence[NDArray[np.float32]]

FILE = "pulses.npy"
BLOCKS, BLOCK = 8, 8  # a batch of the block shuffle; some have blocks one shorter
FEWER, MORE = 3, 2  # how many times fewer requests, and at most how many times the bytes


@exercise("01.3", title="Ask for whole batches", seconds=120)
def read_batches(dataset_class: type[Any]) -> Verdict:
    """Judge `__getitems__` on hidden batches: first what it returns, then what it asks for."""
    expect(
        hasattr(dataset_class, "__getitems__"),
        "The class has no __getitems__, so the loader goes on asking for one event at a time.",
        "Spell it with two underscores on each side and an s.",
    )
    expect_a_class(dataset_class, "a dataset", "builds its own on a storage that counts")
    folder = data_path("events") / "npy"
    offsets = np.load(folder / "offsets.npy")
    events = np.split(np.load(folder / FILE, mmap_mode="r"), offsets[1:-1])
    storage = slow_storage(folder, "laptop SSD", cache_mb=0)

    def make() -> Any:
        return dataset_class(storage, FILE, offsets)

    dataset, last = make(), len(events) - 1
    for batch in ([3], [2, 1, 0], [4, 9, 4, 5], [last, 0, last - 1], list(range(500, 9, -3))):
        asked = list(batch)
        _judge_events(dataset.__getitems__(asked), batch, events)
        expect(
            asked == batch,
            "The list of numbers is changed. It belongs to the sampler, which may need it again.",
            "Work on a copy: sorted(indices) makes a new list, indices.sort() changes the old one.",
        )
    counts = [_judge_requests(make, storage, events, seed) for seed in range(3)]
    batches = [block_batch(len(events), seed) for seed in range(10, 14)]
    for batch, found in zip(batches, loader(make(), batch_sampler=batches), strict=True):
        _judge_events(found, batch, events)
    most = plural(max(counts), "request")
    return right(f"{most} for a batch, instead of one for each of its events.")


def block_batch(events: int, seed: int) -> list[int]:
    """Return events of blocks in random order, two pairs of them with a small gap between."""
    rng = np.random.default_rng(seed)
    spacing = events // BLOCKS
    starts = spacing * np.arange(BLOCKS) + rng.integers(spacing // 2, size=BLOCKS)
    length = BLOCK - seed % 2
    starts[1] = starts[0] + length + 150  # a gap that tempts
    starts[-2] = starts[-1] - length - 72  # a shorter one, of events that are brighter
    batch: list[int] = rng.permutation((starts[:, None] + np.arange(length)).ravel()).tolist()
    return batch


def _judge_events(found: Any, batch: Sequence[int], events: Events) -> None:
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
    wanted, in_order = ([events[index] for index in some] for some in (batch, sorted(batch)))
    whole = all(map(np.array_equal, found, wanted))
    expect(
        whole or not all(map(np.array_equal, found, in_order)),
        "The events come sorted. The loader believes that event 0 of your list is the first "
        "number it asked for.",
        "End with: return [found[index] for index in indices].",
    )
    expect(
        whole,
        "Some events have the pulses of others, or not all of their own.",
        "Compare dataset.__getitems__([5, 6])[1] with dataset[6].",
    )
    kept = all(isinstance(event, np.ndarray) and event.dtype == np.float32 for event in found)
    expect(
        kept,
        "The numbers are right, but an event is no array of float32 any more, as dataset[6] is: it "
        "takes more memory, and collate_fn would meet another type.",
        "Hand out what self.read returned.",
    )


def _judge_requests(
    make: Callable[[], Any], storage: SlowFileSystem, events: Events, seed: int
) -> int:
    batch = block_batch(len(events), seed)
    dataset, counted = make(), []
    for order in sorted(batch), batch:
        storage.reset_counters()
        _judge_events(dataset.__getitems__(order.copy()), order, events)
        counted.append(storage.counters())
    in_order, requests = (one.requests for one in counted)
    wanted, most = sum(events[index].nbytes for index in batch), len(batch) // FEWER
    expect(
        min(one.bytes_read for one in counted) >= wanted,
        "Not all of a batch is requested: events come from memory, or past the storage. Whoever "
        "keeps what was read needs memory for the whole file in the end, in every worker.",
        "Read in __getitems__, by self.read, what this batch needs, and keep nothing in self.",
    )
    expect(
        in_order <= most,
        f"{in_order} requests for {len(batch)} events. The loader calls you once now, but inside "
        "you still ask for one event after the other.",
        "Read neighbours together: self.read(first, last) is one request for all of them.",
    )
    expect(
        requests <= most,
        f"{plural(requests, 'request')} for {len(batch)} events; were they sorted, you would make "
        f"{in_order}. Neighbours are not side by side in a shuffled batch.",
        "Sort the numbers before you look for neighbours.",
    )
    times = counted[1].bytes_read / wanted
    expect(
        times <= MORE,
        f"{plural(requests, 'request')}, but {times:.3g} times the bytes of the events: you read "
        "events that nobody asked for: all that lie between, or whole blocks of a fixed size.",
        "Begin a new request where a number is missing.",
    )
    return requests
