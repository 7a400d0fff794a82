"""Timing of copies and kernels: the rules of CUDA, with the times of the fake device."""

from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from course_utils.hardware.gpu.streams import QUEUE
from keepfed.measure.trace import record
from tests.hardware.fake_device import MS, fake_device, megabytes


@pytest.fixture
def device():
    return fake_device()


def times(trace, lane):
    return [(span.start_ns / MS, span.end_ns / MS) for span in trace.spans if span.lane == lane]


def test_copy_blocks_the_host_unless_pinned_and_non_blocking():
    for pinned, non_blocking, blocked_ms in ((0, 0, 4), (0, 1, 4), (1, 0, 2), (1, 1, 0)):
        gpu, clock = fake_device()
        batch = megabytes(4)
        (pinned_batch,) = gpu.pinned([batch])
        gpu.upload(pinned_batch if pinned else batch, non_blocking=bool(non_blocking))
        assert clock.ms == blocked_ms, (pinned, non_blocking)


def test_small_pageable_copy_returns_but_pinned_gaps_block(device):
    gpu, clock = device
    gpu.step(gpu.upload(megabytes(0.065), non_blocking=True))
    assert clock.ms == 0
    (pinned,) = gpu.pinned([megabytes(4).view(1000, 1000)])
    gpu.upload(pinned.T, non_blocking=True)  # contiguous in memory
    assert clock.ms == 0
    gpu.upload(pinned[:, :500], non_blocking=True)  # after the step, 2 MB at the slower rate
    assert clock.ms == pytest.approx(0.065 + 20 + 2 + 2)


def test_pinning_copies_and_64_kib_return_at_once(device):
    gpu, clock = device
    gpu.pin(megabytes(4))
    assert clock.ms == 4
    gpu.step(None, ms=50)
    for kib, host_ms in ((64, 4), (65, 54)):
        gpu.upload(megabytes(kib * 1024 / 1e6), non_blocking=True)
        assert clock.ms == pytest.approx(host_ms, abs=0.5)


def test_copy_on_a_separate_stream_overlaps_the_step(device):
    gpu, clock = device
    first, second, third = gpu.pinned([megabytes(4)] * 3)
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(first, non_blocking=True))
        for batch in (second, third):  # the device has one copy engine
            with gpu.stream(gpu.Stream()):
                gpu.upload(batch, non_blocking=True)
    assert times(trace, "copy") == [(0, 2), (2, 4), (4, 6)]
    assert times(trace, "gpu") == [(2, 22)]


def test_waiting_for_an_event_ignores_later_launches(device):
    gpu, clock = device
    copies = gpu.Stream()
    first, second = gpu.pinned([megabytes(10), megabytes(10)])
    with record(clock=clock) as trace:
        with gpu.stream(copies):
            uploaded = gpu.upload(first, non_blocking=True)
            done = copies.record_event()
            gpu.upload(second, non_blocking=True)
        gpu.current_stream().wait_event(done)
        gpu.step(uploaded)
        gpu.current_stream().wait_stream(copies)
        gpu.step(uploaded)
    assert times(trace, "copy") == [(0, 5), (5, 10)]
    assert times(trace, "gpu") == [(5, 25), (25, 45)]


def test_event_query_and_synchronize_of_all_streams(device):
    gpu, clock = device
    batch = gpu.upload(megabytes(1))
    with gpu.stream(gpu.Stream()):
        gpu.step(batch, ms=100)
        done = gpu.current_stream().record_event()
    assert not done.query()
    gpu.synchronize()
    assert clock.ms == 101
    assert done.query()
    gpu.step(batch, ms=1)
    done = gpu.current_stream().record_event()
    assert sum(1 for _ in islice(iter(done.query, True), 5_000)) == 1_000  # polling takes time
    assert clock.ms == 102


def test_current_stream_belongs_to_the_thread(device):
    gpu, _ = device
    with ThreadPoolExecutor() as pool, gpu.stream(gpu.Stream()):
        inside, in_another = gpu.current_stream(), pool.submit(gpu.current_stream).result()
    assert in_another is gpu.current_stream()
    assert inside is not in_another


def test_events_have_the_interface_of_torch(device):
    gpu, clock = device
    start, end = (gpu.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="not reached yet"):
        start.elapsed_time(end)
    start.record()
    gpu.step(gpu.upload(megabytes(4)))
    end.record()
    assert not end.query()
    end.synchronize()
    assert start.elapsed_time(end) == 4 + 20
    assert clock.ms == 24
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        start.elapsed_time(gpu.current_stream().record_event())


def test_stream_with_1000_launches_blocks_the_host(device):
    gpu, clock = device
    for _ in range(QUEUE):
        gpu.step(None, ms=2)
    assert clock.ms == 0
    gpu.step(None, ms=2)
    assert clock.ms == 2
    with gpu.stream(gpu.Stream()):
        gpu.step(None, ms=2)
    assert clock.ms == 2
