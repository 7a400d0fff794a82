"""Exercise 01.3: read the events of a batch with few requests."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging import loader
from course_utils.exercises.judging.compare import Slip, compare, equal
from course_utils.exercises.judging.probes import memory_of, process_unchanged
from course_utils.hardware.storage import SlowFileSystem, counting_storage
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_a_class, right

Batch = list[int]
Events = Sequence[NDArray[np.float32]]

FILE, EVENTS = "pulses.npy", 800
FEWER, MORE = 3, 2  # how many times fewer requests, and at most how many times the bytes
ODD: Sequence[Batch] = (
    [3],
    [12, 10],  # one event between them is not in the batch
    [2, 1, 0],
    [4, 9, 4, 5],
    [EVENTS - 1, 0, EVENTS - 2],
    [*range(500, 9, -3)],
    np.random.default_rng(0).permutation(60)[:30].tolist(),
)
# lengths of the blocks of a batch; one block is much longer than the others
BLOCKS = (8,) * 8, (7,) * 8, (12,) * 5, (1, 30, 5, 9, 3), (8,) * 8, (64,)


class EventReads(NamedTuple):
    """Cost of a batch: requests, and bytes that are read and kept for each byte of events."""

    events: int
    requests: int
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
        lambda _, cost, __: cost.read < 1 or cost.kept > 0.1,
        "Your dataset keeps events after a batch. In the end, each worker may keep the whole file.",
        "In __getitems__, read what this batch needs with self.read, and keep it in local "
        "variables.",
    ),
    Slip(
        lambda _, cost, __: cost.requests > cost.events // FEWER,
        "Your dataset sends {got.requests} requests for a shuffled batch of {got.events} events. A "
        "third of the events is the limit.",
        "Sort the indices, and read neighbors together: self.read(first, last) is one request.",
    ),
    Slip(
        lambda _, cost, __: cost.read > MORE,
        "Your dataset reads {got.read:.3g} times the bytes of the batch. Most of them belong to "
        "events that are not in the batch, or are read more than once.",
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
    with _hidden_file(0) as (storage, offsets, events), _hidden_file(1) as (other, places, others):
        first = dataset_class(storage, FILE, offsets)
        second = dataset_class(other, FILE, places)
        for dataset, wanted in (first, events), (second, others):
            _compare(dataset, wanted)  # a class must not remember the other file
        _judge_costs(lambda: dataset_class(storage, FILE, offsets), storage, events)
    return right("A batch needs at most a third of the requests, even in two workers.")


@contextmanager
def _hidden_file(seed: int) -> Iterator[tuple[SlowFileSystem, NDArray[np.int64], Events]]:
    """Yield a storage with a file, the offsets of its events, and the events."""
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *rng.integers(40, 90, EVENTS)])
    pulses = rng.random((int(offsets[-1]), 4), np.float32)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        np.save(Path(folder, FILE), pulses)
        yield counting_storage(Path(folder)), offsets, np.split(pulses, offsets[1:-1])


def _compare(dataset: Any, events: Events) -> None:
    def read(batch: Batch) -> Any:
        given = [*batch]
        with process_unchanged(given):
            return dataset.__getitems__(given)

    call = "BatchedPulseFile(storage, 'npy/pulses.npy', offsets).__getitems__({})".format
    compare(read, partial(_plain, events), ODD, SORTED, call=call)
    compare(dataset.__getitem__, events.__getitem__, range(3), call="dataset[{}]".format)


def _plain(events: Events, batch: Batch) -> Events:
    return [events[index] for index in batch]


def _judge_costs(make: Callable[[], Any], storage: SlowFileSystem, events: Events) -> None:
    batches = [_blocks(lengths, seed) for seed, lengths in enumerate(BLOCKS)]
    sizes = [sum(event.nbytes for event in _plain(events, batch)) for batch in batches]
    dataset, kept, _ = memory_of(lambda: _read_all(make(), batches))
    costs = [_cost(dataset, storage, *case) for case in zip(batches, sizes, strict=True)]
    storage.reset_counters()
    last = dataset[EVENTS - 1]
    costs.append(EventReads(FEWER, 1, storage.counters().bytes_read / last.nbytes))
    storage.reset_counters()
    served = iter(loader(dataset, batch_sampler=batches))
    compare(lambda _: next(served), partial(_plain, events), batches, SORTED)
    each = storage.counters().requests // len(batches)
    costs.append(EventReads(len(batches[0]), each, kept=kept / sum(sizes)))
    compare(lambda cost: cost, lambda _: None, costs, *COSTS, same=lambda *_: True)


def _read_all(dataset: Any, batches: Sequence[Batch]) -> Any:
    for batch in batches:
        dataset.__getitems__([*batch])
    return dataset


def _blocks(lengths: Sequence[int], seed: int) -> Batch:
    """Return the events of blocks in random order, with gaps that tempt between some of them."""
    rng = np.random.default_rng(seed)
    firsts = rng.integers(20) + np.cumsum([0, *lengths[:-1]]) + 72 * np.arange(len(lengths))
    chosen = chain(*(range(start, start + n) for start, n in zip(firsts, lengths, strict=True)))
    batch: Batch = rng.permutation([*chosen]).tolist()
    return batch


def _cost(dataset: Any, storage: SlowFileSystem, batch: Batch, size: int) -> EventReads:
    storage.reset_counters()
    dataset.__getitems__([*batch])
    counted = storage.counters()
    return EventReads(len(batch), counted.requests, counted.bytes_read / size)
