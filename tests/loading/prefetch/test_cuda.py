"""Properties of CudaPrefetcher that are not part of the contract in exercise 09.2."""

import weakref

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from course_utils.hardware.gpu import checksum
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.spans import hidden_share, stage
from keepfed.measure.trace import record
from tests.hardware.fake_device import fake_device, megabytes

MB = 1_000_000


@pytest.fixture
def gpu():
    return fake_device()[0]


def losses(gpu, batches, *, late=False):
    found = []
    for batch in batches:
        found.append(gpu.step(batch))
        del batch
        if not late:
            found[-1].item()
    return [loss.item() for loss in found]


def test_on_the_cpu_every_batch_keeps_its_tensors(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    batch = {"pulses": torch.ones(2), "name": "event", "ids": [1, None]}
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    received, received_packed = CudaPrefetcher([batch, packed])
    assert received == batch
    assert received["pulses"] is batch["pulses"]
    assert received_packed.data is packed.data


@pytest.fixture
def two_cuda_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")


def test_cuda_device_is_fixed_in_the_constructor(two_cuda_devices):
    for device, index in (("cuda", 1), ("cuda:0", 0), (None, 1)):
        gpu = CudaPrefetcher([], device).device
        assert gpu.device == torch.device("cuda", index)
    # tensors that are already on a device need no pinning
    assert gpu.is_pinned({"elsewhere": torch.zeros(1, device="meta"), "name": "event"})
    assert not gpu.is_pinned({"here": torch.zeros(1)})


def test_invalid_argument_is_reported_in_one_sentence(two_cuda_devices):
    whole = "^`depth` must be a whole number of at least 1, but is "
    missing = r"^cuda:\d does not exist\. CUDA devices: 2\. Omit the device"
    for given, error, sentence in (
        ({"device": "gpu"}, ValueError, "^'gpu' is not a valid device. Use \"cuda\", "),
        ({"depth": "2"}, TypeError, f"{whole}'2'"),
        ({"depth": 1.5}, TypeError, f"{whole}1.5"),
        *(({"device": d}, RuntimeError, missing) for d in ("cuda:2", 2, torch.device("cuda", 3))),
    ):
        with pytest.raises(error, match=sentence):
            CudaPrefetcher([], **given)


def test_copy_that_does_not_fit_raises_after_earlier_batches():
    gpu, _ = fake_device(memory_gib=0.05)
    batches = gpu.pinned([megabytes(1), megabytes(1), megabytes(60)])
    received = []
    with pytest.raises(torch.OutOfMemoryError, match="smaller batch_size"):
        received.extend(CudaPrefetcher(batches, gpu))
    assert len(received) == 2


def test_kept_traceback_does_not_keep_the_loader_iterator(gpu):
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


def test_large_pageable_batches_and_gaps_cause_one_warning_at_the_loop(gpu):
    prefetcher = CudaPrefetcher([megabytes(0.1)] * 4, gpu)
    with pytest.warns(UserWarning, match="pin_memory=True") as caught:
        assert [len(list(prefetcher)) for _ in range(2)] == [4, 4]
    assert [warning.filename for warning in caught] == [__file__]
    # every warning is an error in these tests
    assert list(CudaPrefetcher([None, {"ids": [1, 2]}], gpu)) == [None, {"ids": [1, 2]}]
    (images,) = gpu.pinned([megabytes(1)])
    list(CudaPrefetcher([(images, torch.arange(256), torch.arange(256))], gpu))
    with pytest.warns(UserWarning, match="pageable memory"):
        list(CudaPrefetcher([(images, *(torch.zeros(10_000) for _ in range(2)))], gpu))
    (wide,) = gpu.pinned([torch.ones(64, 8)])
    with pytest.warns(UserWarning, match=r"contiguous\(\)"):
        list(CudaPrefetcher([{"cut": wide[:, :4]}], gpu))
    list(CudaPrefetcher([{"turned": wide.T, "first": wide[:9]}], gpu))


def test_all_copies_but_the_first_overlap_with_steps():
    for step_ms, hidden, total_ms in ((20, 1, 215), (5, 5 / 15, 155)):
        gpu, clock = fake_device(step_ms=step_ms)
        batches = [megabytes(30)] * 10  # 15 ms per copy
        with record(clock=clock) as trace:
            losses(gpu, CudaPrefetcher(gpu.pinned(batches), gpu))
        copies = [span for span in trace.spans if span.lane == "copy"]
        others = [span for span in trace.spans if span != copies[0]]
        assert hidden_share(others) == pytest.approx(hidden)
        assert clock.ms == total_ms


def test_memory_is_constant_and_the_device_stays_busy():
    for depth in (1, 2):
        gpu, clock = fake_device(step_ms=20)
        prefetcher = CudaPrefetcher(gpu.pinned([megabytes(1)] * 30), gpu, depth=depth)
        for _ in range(2):
            losses(gpu, prefetcher)
            assert gpu.memory_allocated() == 0
        assert gpu.max_memory_allocated() == (depth + 1) * MB
        start = clock.ms
        losses(gpu, prefetcher, late=True)
        assert gpu.max_memory_allocated() == (depth + 2) * MB
        assert clock.ms - start == 0.5 + 30 * 20


def test_new_prefetcher_per_epoch_uses_no_more_memory(gpu):
    batches = list(gpu.pinned([megabytes(1)] * 4))
    for _ in range(40):
        losses(gpu, CudaPrefetcher(batches, gpu))
    assert gpu.memory_reserved() == 2 * MB


WANTED = [checksum([torch.full((25_000,), float(number))]).item() for number in range(20)]


def test_memory_may_be_refilled_after_depth_plus_two_batches():
    for depth, more, right in ((1, 3, 20), (2, 4, 20), (1, 2, 2)):
        gpu, _ = fake_device(step_ms=20)
        ring = list(gpu.pinned([torch.empty(25_000) for _ in range(more)]))
        batches = (ring[number % more].fill_(number) for number in range(20))
        found = losses(gpu, CudaPrefetcher(batches, gpu, depth=depth), late=True)
        assert sum(a == b for a, b in zip(found, WANTED, strict=True)) == right, (depth, more)


def test_reused_memory_is_safe_if_the_loop_changes_its_stream():
    for streams in (1, 2):
        gpu, _ = fake_device(step_ms=20)
        ring = list(gpu.pinned([torch.empty(25_000) for _ in range(3)]))
        computing, found = [gpu.Stream() for _ in range(streams)], []
        batches = iter(CudaPrefetcher((ring[n % 3].fill_(n) for n in range(9)), gpu))
        for number in range(9):
            with gpu.stream(computing[number % streams]):
                found.append(gpu.step(next(batches)))
        assert [loss.item() for loss in found] == WANTED[:9], streams


def test_spans_have_the_index_of_their_batch():
    gpu, clock = fake_device()
    batches = list(gpu.pinned([megabytes(1)] * 4))
    with record(clock=clock) as trace:
        for _ in range(2):
            for batch in CudaPrefetcher(trace.batches(batches), gpu, depth=2):
                with stage("compute"):
                    gpu.step(batch).item()
            assert trace.batch == -1
    for lane, name in [("copy", "transfer"), ("gpu", "compute"), ("main", "compute")]:
        found = [span.batch for span in trace.spans if (span.lane, span.stage) == (lane, name)]
        assert found == list(range(8))
