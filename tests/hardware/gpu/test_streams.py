"""When copies and kernels run: the rules of CUDA, with the times of the fake device."""

from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from course_utils.hardware.gpu.streams import QUEUE, STREAMS
from keepfed.measure.trace import record
from tests.hardware.fake_device import MS, fake_device, megabytes


@pytest.fixture
def device():
    return fake_device()


def times(trace, lane):
    return [(span.start_ns / MS, span.end_ns / MS) for span in trace.spans if span.lane == lane]


@pytest.mark.parametrize(
    ("pinned", "non_blocking", "blocked_ms"),
    [(False, False, 4), (False, True, 4), (True, False, 2), (True, True, 0)],
)
def test_a_copy_blocks_the_host_unless_pinned_and_asked_not_to(
    pinned, non_blocking, blocked_ms, device
):
    gpu, clock = device
    batch = megabytes(4)
    (pinned_batch,) = gpu.pinned([batch])
    gpu.upload(pinned_batch if pinned else batch, non_blocking=non_blocking)
    assert clock.ms == blocked_ms


def test_a_small_pageable_copy_lets_the_host_go_on_and_pinned_memory_with_gaps_does_not(device):
    gpu, clock = device
    gpu.step(gpu.upload(megabytes(0.065), non_blocking=True))
    assert clock.ms == 0
    (pinned,) = gpu.pinned([megabytes(4).view(1000, 1000)])
    gpu.upload(pinned.T, non_blocking=True)  # no gaps
    assert clock.ms == 0
    gpu.upload(pinned[:, :500], non_blocking=True)  # behind the step, 2 MB at the slower rate
    assert clock.ms == pytest.approx(0.065 + 20 + 2 + 2)


def test_a_copy_on_the_default_stream_waits_for_the_step_before_it(device):
    gpu, clock = device
    first, second = gpu.pinned([megabytes(4), megabytes(4)])
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(first, non_blocking=True))
        gpu.step(gpu.upload(second, non_blocking=True))
    assert times(trace, "copy") == [(0, 2), (22, 24)]
    assert times(trace, "gpu") == [(2, 22), (24, 44)]


def test_a_copy_on_a_stream_of_its_own_runs_beside_the_step_and_behind_other_copies(device):
    gpu, clock = device
    first, second, third = gpu.pinned([megabytes(4)] * 3)
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(first, non_blocking=True))
        for batch in (second, third):  # there is one copy engine
            with gpu.stream(gpu.Stream()):
                gpu.upload(batch, non_blocking=True)
    assert times(trace, "copy") == [(0, 2), (2, 4), (4, 6)]
    assert times(trace, "gpu") == [(2, 22)]


def test_waiting_for_an_event_does_not_wait_for_what_was_launched_after_it(device):
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


def test_an_event_tells_when_it_is_passed_and_synchronize_waits_for_all_streams(device):
    gpu, clock = device
    batch = gpu.upload(megabytes(1))
    with gpu.stream(gpu.Stream()):
        gpu.step(batch, ms=100)
        done = gpu.current_stream().record_event()
    assert not done.query()
    gpu.synchronize()
    assert clock.ms == 101
    assert done.query()


def test_who_asks_in_a_loop_gets_on_by_a_clock_that_only_waiting_moves(device):
    gpu, clock = device
    gpu.step(gpu.upload(megabytes(1)), ms=1)
    done = gpu.current_stream().record_event()
    assert sum(1 for _ in islice(iter(done.query, True), 5_000)) == 1_000
    assert clock.ms == 2


def test_the_current_stream_belongs_to_the_thread(device):
    gpu, _ = device
    with ThreadPoolExecutor() as pool, gpu.stream(gpu.Stream()):
        inside, in_another = gpu.current_stream(), pool.submit(gpu.current_stream).result()
    assert in_another is gpu.current_stream()
    assert inside is not in_another


def test_events_are_used_as_those_of_torch(device):
    gpu, clock = device
    start, end = (gpu.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="not passed yet"):
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


def test_a_recorded_event_holds_back_the_stream_that_waits_for_it(device):
    gpu, clock = device
    copies, arrived = gpu.Stream(), gpu.Event()
    with record(clock=clock) as trace:
        with gpu.stream(copies):
            (batch,) = gpu.pinned([megabytes(10)])
            batch = gpu.upload(batch, non_blocking=True)
            arrived.record()
        arrived.wait()
        assert gpu.step(batch).item() == gpu.step(batch).item()
    assert times(trace, "gpu") == [(5, 25), (25, 45)]
    assert copies.query()


def test_the_device_has_32_streams_and_hands_them_out_again(device):
    gpu, _ = device
    handed_out = [gpu.Stream() for _ in range(2 * STREAMS)]
    assert handed_out[STREAMS:] == handed_out[:STREAMS]
    assert len({stream.number for stream in [gpu.current_stream(), *handed_out]}) == 1 + STREAMS


def test_a_stream_that_has_taken_a_thousand_launches_holds_up_the_host_with_the_next(device):
    gpu, clock = device
    for _ in range(QUEUE):
        gpu.step(None, ms=2)
    assert clock.ms == 0
    gpu.step(None, ms=2)
    assert clock.ms == 2
    with gpu.stream(gpu.Stream()):
        gpu.step(None, ms=2)
    assert clock.ms == 2
