"""Exercise 01.3: read the events of a batch with few requests."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import Slip, compare, equal
from course_utils.exercises.judging.probes import memory_of, process_unchanged
from course_utils.hardware.storage import SlowFileSystem, counting_storage
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right
from course_utils.teaching.notebook import data_path

Batch = list[int]
Events = Sequence[NDArray[np.float32]]

FILE = "pulses.npy"
BLOCKS, BLOCK = 8, 8  # a batch has 8 blocks of 8 events, or of 7
FEWER, MORE = 3, 2  # how many times fewer requests, and at most how many times the bytes


class EventReads(NamedTuple):
    """Cost of a batch: requests, requests if it is sorted, and bytes for each byte of events."""

    events: int
    requests: int
    in_order: int
    read: float = 1
    kept: float = 0


SORTED = Slip(
    lambda batch, got, wanted: (
        not equal(got, wanted) and equal(got, [wanted[place] for place in np.argsort(batch)])
    ),
    "Your events are sorted. The loader expects event 0 of your list to be the first event that it "
    "requested.",
    "Write return [found[index] for index in indices].",
)
COSTS = (
    Slip(
        lambda _, cost, __: cost.read < 1 or cost.kept > 0.5,
        "Your dataset keeps events in memory. In the end, each worker keeps the complete file.",
        "In __getitems__, read what this batch needs with self.read, and keep it in local "
        "variables.",
    ),
    Slip(
        lambda _, cost, __: cost.in_order > cost.events // FEWER,
        "Your dataset sends {got.in_order} requests for a batch. The loader calls __getitems__ "
        "once, but inside, you still read one event at a time.",
        "Read neighbours together: self.read(first, last) is one request.",
    ),
    Slip(
        lambda _, cost, __: cost.requests > cost.events // FEWER,
        "Your dataset sends {got.requests} requests for a shuffled batch, but {got.in_order} for a "
        "sorted one. In a shuffled batch, neighbours are in different places.",
        "Sort the indices before you search for neighbours.",
    ),
    Slip(
        lambda _, cost, __: cost.read > MORE,
        "Your dataset reads {got.read:.3g} times the bytes of the batch. Most of them belong to "
        "events that are not in the batch.",
        "Start a new request where an index is missing.",
    ),
)


@exercise("01.3", title="Read whole batches", seconds=60)
def read_batches(dataset_class: type[Any]) -> Verdict:
    """Check `__getitems__` on hidden batches: its result, its requests, and both in workers."""
    expect(
        hasattr(dataset_class, "__getitems__"),
        "The class has no __getitems__, so the loader still reads one event at a time.",
        "Spell it with two underscores on each side and an s.",
    )
    expect_a_class(dataset_class, "a dataset", "creates its own on a storage that counts")
    folder = data_path("events") / "npy"
    offsets, storage = np.load(folder / "offsets.npy"), counting_storage(folder)
    events = np.split(np.load(folder / FILE, mmap_mode="r"), offsets[1:-1])

    def plain(batch: Batch) -> Events:
        return [np.array(events[index]) for index in batch]

    def read(batch: Batch) -> Any:
        with process_unchanged(batch):
            return dataset.__getitems__(batch)

    dataset, last = dataset_class(storage, FILE, offsets), len(events) - 1
    odd = [[3], [2, 1, 0], [4, 9, 4, 5], [last, 0, last - 1], [*range(500, 9, -3)]]
    compare(read, plain, odd, SORTED)
    compare(lambda batch: [dataset[batch[0]]], lambda batch: plain(batch[:1]), odd)
    batches = [block_batch(len(events), seed) for seed in range(6)]
    sizes = [sum(event.nbytes for event in plain(batch)) for batch in batches]
    _, kept, _ = memory_of(lambda: any(dataset.__getitems__([*batch]) is None for batch in batches))
    costs = [_cost(dataset, storage, *case) for case in zip(batches, sizes, strict=True)]
    storage.reset_counters()
    served = iter(loader(dataset, batch_sampler=batches))
    compare(lambda _: next(served), plain, batches, SORTED)
    each = storage.counters().requests // len(batches)
    costs.append(EventReads(len(batches[0]), each, each, kept=kept / sum(sizes)))
    compare(lambda cost: cost, lambda _: None, costs, *COSTS, same=lambda *_: True)
    return right("A batch needs at most a third of the requests, even in two workers.")


def block_batch(events: int, seed: int) -> Batch:
    """Return events of blocks in random order, two pairs of them with a small gap between."""
    rng = np.random.default_rng(seed)
    spacing = events // BLOCKS
    starts = spacing * np.arange(BLOCKS) + rng.integers(spacing // 2, size=BLOCKS)
    length = BLOCK - seed % 2
    starts[1] = starts[0] + length + 150  # a gap that tempts
    starts[-2] = starts[-1] - length - 72  # a smaller one, between events that are brighter
    batch: Batch = rng.permutation((starts[:, None] + np.arange(length)).ravel()).tolist()
    return batch


def _cost(dataset: Any, storage: SlowFileSystem, batch: Batch, size: int) -> EventReads:
    requests = []
    for order in sorted(batch), batch:
        storage.reset_counters()
        dataset.__getitems__([*order])
        requests.append(storage.counters().requests)
    return EventReads(len(batch), requests[1], requests[0], storage.counters().bytes_read / size)
