"""What a loop sees of CudaPrefetcher: values, epochs, errors, ends. See also *_on_device.py."""

import contextlib
import gc
import itertools
import multiprocessing
import threading
import traceback
import warnings
import weakref
from collections import namedtuple
from dataclasses import dataclass, field

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

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
    """Batches with their numbers in them; one may be corrupt, or interrupted."""

    def __init__(self, gpu, length=6, *, fails_at=-1, error=None):
        batches = [torch.full((250,), float(number)) for number in range(length)]
        self.batches = list(gpu.pinned(batches))
        self.fails_at, self.error = fails_at, error or ValueError("corrupt event")
        self.closed = 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        try:
            for number, batch in enumerate(self.batches):
                if number == self.fails_at:
                    raise self.error
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


@pytest.fixture(autouse=True)
def no_thread_stays_behind():
    before = set(threading.enumerate())
    yield
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name != "QueueFeederThread"]


def number(batch):
    return int(batch.cpu()[0])


def numbers(batches):
    return [number(batch) for batch in batches]


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


@pytest.mark.parametrize("depth", [0, -1])
def test_a_depth_below_one_is_refused(depth, gpu):
    with pytest.raises(ValueError, match="take at least 1"):
        CudaPrefetcher([], gpu, depth=depth)


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


@pytest.mark.parametrize("depth", [1, 2, 5, 50])
@pytest.mark.parametrize("length", [0, 1, 2, 6])
def test_every_batch_comes_once_and_in_order_in_every_epoch(length, depth, gpu):
    source = Source(gpu, length)
    prefetcher = CudaPrefetcher(source, gpu, depth=depth)
    for _ in range(3):
        assert numbers(prefetcher) == list(range(length))
    assert source.closed == 3


def test_the_length_is_that_of_the_loader(gpu):
    assert len(CudaPrefetcher(Source(gpu, 6), gpu)) == 6
    with pytest.raises(TypeError, match="len"):
        len(CudaPrefetcher(iter([]), gpu))


def test_nothing_is_loaded_before_the_loop(gpu):
    loaded = []
    iter(CudaPrefetcher(map(loaded.append, [1, 2]), gpu))
    assert loaded == []


def test_an_endless_loader_is_read_only_depth_batches_ahead(gpu):
    made = itertools.count()
    endless = gpu.pinned(torch.full((10,), float(n)) for n in made)
    stream = iter(CudaPrefetcher(endless, gpu, depth=2))
    assert [number(next(stream)) for _ in range(4)] == [0, 1, 2, 3]
    stream.close()
    assert next(made) == 6


@pytest.mark.parametrize("depth", [1, 3, 9])
@pytest.mark.parametrize("fails_at", [0, 1, 5])
def test_an_error_comes_after_the_batches_before_it(fails_at, depth, gpu):
    received = []
    with pytest.raises(ValueError, match="corrupt event") as caught:
        note(received, CudaPrefetcher(Source(gpu, fails_at=fails_at), gpu, depth=depth))
    assert received == list(range(fails_at))
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert frames[-1].line == "raise self.error"
    assert gpu.memory_allocated() == 0


def test_an_epoch_after_an_error_starts_afresh(gpu):
    source = Source(gpu, fails_at=3)
    prefetcher = CudaPrefetcher(source, gpu)
    with pytest.raises(ValueError, match="corrupt"):
        list(prefetcher)
    source.fails_at = -1
    assert numbers(prefetcher) == list(range(6))


def test_an_error_is_freed_when_it_was_handled(gpu):
    """A cycle of frame and traceback would keep the workers until the next collection."""

    def source():
        heavy = torch.zeros(2)
        alive.append(weakref.ref(heavy))
        yield heavy
        raise ValueError(f"corrupt event after {heavy}")

    alive = []
    gc.disable()
    try:
        with contextlib.suppress(ValueError):
            list(CudaPrefetcher(gpu.pinned(source()), gpu))
        assert alive[0]() is None
    finally:
        gc.enable()


def test_a_copy_that_does_not_fit_is_an_error_after_the_batches_before_it():
    gpu, _ = fake_device(memory_gib=0.05)
    batches = gpu.pinned([megabytes(1), megabytes(1), megabytes(60)])
    received = []
    with pytest.raises(torch.OutOfMemoryError, match="smaller batch_size"):
        received.extend(CudaPrefetcher(batches, gpu))
    assert len(received) == 2


def test_an_interrupt_is_raised_at_once_and_leaves_nothing(gpu):
    source, received = Source(gpu, fails_at=4, error=KeyboardInterrupt()), []
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


def test_a_loop_may_be_left_and_begun_again_inside_another(gpu):
    prefetcher = CudaPrefetcher(Source(gpu), gpu)
    seen = []
    for outer in prefetcher:
        for inner in prefetcher:
            seen.append((number(outer), number(inner)))
            if number(inner) == 1:
                break
    assert seen == [(outer, inner) for outer in range(6) for inner in (0, 1)]


def test_two_loops_at_once_do_not_disturb_each_other(gpu):
    prefetcher = CudaPrefetcher(Source(gpu), gpu)
    pairs = [(number(a), number(b)) for a, b in zip(prefetcher, prefetcher, strict=True)]
    assert pairs == [(n, n) for n in range(6)]


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
def test_a_loader_with_workers_serves_two_epochs_and_no_worker_outlives_a_break(start_method, gpu):
    loader = DataLoader(
        TensorDataset(torch.arange(12)),
        batch_size=4,
        num_workers=1,
        timeout=120,
        multiprocessing_context=start_method,
        persistent_workers=True,
    )
    prefetcher = CudaPrefetcher(gpu.pinned(loader), gpu)
    for _ in range(2):
        assert torch.cat([batch.cpu() for (batch,) in prefetcher]).tolist() == list(range(12))
    for _ in prefetcher:
        break
    del loader, prefetcher
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_an_iterable_dataset_is_served_whole_and_break_ends_its_workers(gpu):
    loader = DataLoader(Shards(), batch_size=5, num_workers=2, timeout=120)
    prefetcher = CudaPrefetcher(gpu.pinned(loader), gpu)
    served = [n for batch in prefetcher for n in batch.cpu().tolist()]
    assert sorted(served) == list(range(20))
    for _ in prefetcher:
        break
    assert multiprocessing.active_children() == []
