"""What a loop sees of CudaPrefetcher: values, epochs, errors, ends. See also *_on_device.py."""

import multiprocessing
import warnings
import weakref
from collections import namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from course_utils.hardware.gpu import checksum
from course_utils.loading.prefetch import CudaPrefetcher
from tests.hardware.fake_device import fake_device, megabytes

Pair = namedtuple("Pair", ["pulses", "labels"])


@dataclass(frozen=True)
class Frozen:
    pulses: torch.Tensor
    ids: list[int]
    count: int = field(init=False, default=7)


class Source:
    """Batches with their numbers in them; one may be interrupted."""

    def __init__(self, gpu, *, interrupted_at=-1):
        self.batches = list(gpu.pinned(torch.full((250,), float(n)) for n in range(6)))
        self.interrupted_at, self.closed = interrupted_at, 0

    def __iter__(self):
        try:
            for number, batch in enumerate(self.batches):
                if number == self.interrupted_at:
                    raise KeyboardInterrupt
                yield batch
        finally:
            self.closed += 1


class Shards(IterableDataset):
    """Twenty numbers, each worker every second of them."""

    def __iter__(self):
        worker = get_worker_info()
        yield from (torch.tensor(n) for n in range(worker.id, 20, worker.num_workers))


@pytest.fixture
def gpu():
    return fake_device()[0]


def number(batch):
    return int(batch.cpu()[0])


def note(received, batches):
    """Append the numbers to `received` as they come, and keep no batch."""
    for batch in batches:
        received.append(number(batch))
        del batch


def test_on_a_cpu_every_batch_keeps_its_tensors():
    batches = [{"pulses": torch.ones(2), "name": "event", "ids": [1, None]} for _ in range(3)]
    for received, batch in zip(CudaPrefetcher(batches, "cpu"), batches, strict=True):
        assert received["pulses"] is batch["pulses"]
        assert received == batch


def test_without_cuda_the_default_is_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert CudaPrefetcher([]).device == torch.device("cpu")


def test_a_packed_sequence_passes_on_a_cpu():
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    (received,) = CudaPrefetcher([packed], "cpu")
    assert received.data is packed.data
    assert received.batch_sizes is packed.batch_sizes


@pytest.mark.parametrize("device", ["cuda", "cuda:0", 0, torch.device("cuda", 3)], ids=str)
def test_a_device_that_is_not_there_is_named_in_one_sentence(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(RuntimeError, match=r"^The device cuda\S* is not here .*: leave it out .*"):
        CudaPrefetcher([], device)


def test_every_tensor_of_a_nested_batch_arrives_and_the_rest_passes_through(gpu):
    a, b, c, d = gpu.pinned(megabytes(0.01, seed=seed) for seed in range(4))
    batch = {"pair": Pair(a, [b]), "frozen": Frozen(c, [4]), "rest": (d, "event", None, 5)}
    (received,) = CudaPrefetcher([batch], gpu)
    frozen = received["frozen"]
    tensors = [
        received["pair"].pulses,
        *received["pair"].labels,
        frozen.pulses,
        received["rest"][0],
    ]
    assert [gpu.step(t).item() for t in tensors] == [checksum([t]).item() for t in (a, b, c, d)]
    assert type(received["pair"]) is Pair
    assert (type(frozen), frozen.ids, frozen.count) == (Frozen, [4], 7)
    assert received["rest"][1:] == ("event", None, 5)


def test_a_copy_that_does_not_fit_is_an_error_after_the_batches_before_it():
    gpu, _ = fake_device(memory_gib=0.05)
    batches = gpu.pinned([megabytes(1), megabytes(1), megabytes(60)])
    received = []
    with pytest.raises(torch.OutOfMemoryError, match="smaller batch_size"):
        received.extend(CudaPrefetcher(batches, gpu))
    assert len(received) == 2


def test_an_interrupt_is_raised_at_once_and_leaves_nothing(gpu):
    source, received = Source(gpu, interrupted_at=4), []
    with pytest.raises(KeyboardInterrupt):
        note(received, CudaPrefetcher(source, gpu))
    assert received == [0, 1, 2]
    assert (source.closed, gpu.memory_allocated()) == (1, 0)


@pytest.mark.parametrize("depth", [1, 4])
def test_break_leaves_no_batch_and_closes_the_loader(depth, gpu):
    source = Source(gpu)
    for batch in CudaPrefetcher(source, gpu, depth=depth):
        del batch
        break
    gpu.synchronize()
    assert (source.closed, gpu.memory_allocated()) == (1, 0)


def test_break_closes_an_iterator_that_somebody_else_keeps(gpu):
    source, kept = Source(gpu), []

    class Keeping:
        def __iter__(self):
            kept.append(iter(source))
            return kept[0]

    for _ in CudaPrefetcher(Keeping(), gpu):
        break
    assert source.closed == 1


def test_a_traceback_that_is_kept_keeps_no_iterator_of_the_loader(gpu):
    class Numbers:
        def __next__(self):
            return 1

    class Loader:
        def __iter__(self):
            numbers = Numbers()
            alive.append(weakref.ref(numbers))
            return numbers

    alive = []
    stream = iter(CudaPrefetcher(Loader(), gpu))
    next(stream)
    with pytest.raises(KeyboardInterrupt) as caught:
        stream.throw(KeyboardInterrupt())
    assert caught.tb is not None
    assert alive[0]() is None


def test_pageable_batches_are_mentioned_once_where_the_loop_is(gpu):
    prefetcher = CudaPrefetcher([megabytes(0.01)] * 4, gpu)
    with pytest.warns(UserWarning, match="pin_memory=True") as caught:
        assert [len(list(prefetcher)) for _ in range(2)] == [4, 4]
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("batch", ["text", 5, None, {"ids": [1, 2]}], ids=repr)
def test_a_batch_without_tensors_is_handed_on_without_a_warning(batch, gpu):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(CudaPrefetcher([batch, batch], gpu)) == [batch, batch]


@pytest.mark.slow
def test_an_iterable_dataset_is_served_whole_and_break_ends_its_workers(gpu):
    loader = DataLoader(Shards(), batch_size=5, num_workers=2, timeout=120)
    prefetcher = CudaPrefetcher(gpu.pinned(loader), gpu)
    served = [n for batch in prefetcher for n in batch.cpu().tolist()]
    assert sorted(served) == list(range(20))
    for _ in prefetcher:
        break
    assert multiprocessing.active_children() == []
