import threading

import pytest

from course_utils.measure.trace import record
from tests.hardware.fake_device import MS, fake_device, megabytes


def times(trace, lane):
    return [(span.start_ns / MS, span.end_ns / MS) for span in trace.spans if span.lane == lane]


def test_a_step_returns_at_once_and_its_loss_waits():
    gpu, clock = fake_device()
    loss = gpu.step(gpu.upload(megabytes(4)))
    assert clock.ms == 4
    loss.item()
    assert clock.ms == 24


def test_a_pageable_copy_blocks_the_host_even_if_asked_not_to():
    gpu, clock = fake_device()
    gpu.upload(megabytes(4), non_blocking=True)
    assert clock.ms == 4


def test_a_pinned_copy_is_twice_as_fast_and_returns_at_once():
    gpu, clock = fake_device()
    with record(clock=clock) as trace:
        batch = gpu.pin(megabytes(4))
        assert clock.ms == 4  # pinning copies at the rate of the host
        gpu.upload(batch, non_blocking=True)
    assert clock.ms == 4
    assert times(trace, "main") == [(0, 4)]
    assert times(trace, "copy") == [(4, 6)]


def test_a_pinned_copy_blocks_the_host_unless_asked_not_to():
    gpu, clock = fake_device()
    (batch,) = gpu.pinned([megabytes(4)])
    gpu.upload(batch)
    assert clock.ms == 2


def test_a_copy_on_the_default_stream_waits_for_the_step_before_it():
    gpu, clock = fake_device()
    first, second = gpu.pinned([megabytes(4), megabytes(4)])
    with record(clock=clock) as trace:
        for batch in (first, second):
            gpu.step(gpu.upload(batch, non_blocking=True))
    assert times(trace, "copy") == [(0, 2), (22, 24)]
    assert times(trace, "gpu") == [(2, 22), (24, 44)]


def test_a_copy_on_a_stream_of_its_own_runs_beside_the_step():
    gpu, clock = fake_device()
    first, second = gpu.pinned([megabytes(4), megabytes(4)])
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(first, non_blocking=True))
        with gpu.stream(gpu.Stream()):
            gpu.upload(second, non_blocking=True)
    assert times(trace, "copy") == [(0, 2), (2, 4)]
    assert times(trace, "gpu") == [(2, 22)]


def test_two_copies_share_one_engine_also_on_two_streams():
    gpu, clock = fake_device()
    with record(clock=clock) as trace:
        for batch in gpu.pinned([megabytes(4), megabytes(4)]):
            with gpu.stream(gpu.Stream()):
                gpu.upload(batch, non_blocking=True)
    assert times(trace, "copy") == [(0, 2), (2, 4)]


def test_a_step_waits_for_the_event_of_the_copy():
    gpu, clock = fake_device()
    copies = gpu.Stream()
    (batch,) = gpu.pinned([megabytes(10)])
    with record(clock=clock) as trace:
        with gpu.stream(copies):
            uploaded = gpu.upload(batch, non_blocking=True)
        gpu.current_stream().wait_event(copies.record_event())
        gpu.step(uploaded)
    assert times(trace, "gpu") == [(5, 25)]


def test_waiting_for_an_event_does_not_wait_for_what_was_launched_after_it():
    gpu, clock = fake_device()
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


def test_synchronize_waits_for_all_streams():
    gpu, clock = fake_device()
    batch = gpu.upload(megabytes(1))
    with gpu.stream(gpu.Stream()):
        gpu.step(batch, ms=100)
    gpu.synchronize()
    assert clock.ms == 101


def test_a_stream_and_an_event_tell_when_they_are_done():
    gpu, clock = fake_device()
    start, end = gpu.Event(enable_timing=True), gpu.Event(enable_timing=True)
    start.record()
    gpu.step(None)
    end.record()
    assert not end.query()
    assert not gpu.current_stream().query()
    with pytest.raises(RuntimeError, match="synchronize"):
        start.elapsed_time(end)
    clock.work(20)
    assert end.query()
    assert gpu.current_stream().query()
    assert start.elapsed_time(end) == 20


def test_an_event_without_timing_says_how_to_get_it():
    gpu, _ = fake_device()
    event = gpu.current_stream().record_event()
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        event.elapsed_time(event)


def test_an_event_never_recorded_is_passed():
    gpu, clock = fake_device()
    event = gpu.Event()
    event.wait()
    event.synchronize()
    assert event.query()
    assert clock.ms == 0


def test_the_current_stream_belongs_to_the_thread():
    gpu, _ = fake_device()
    seen = []
    with gpu.stream(gpu.Stream()) as _:
        thread = threading.Thread(target=lambda: seen.append(gpu.current_stream()))
        thread.start()
        thread.join()
        inside = gpu.current_stream()
    assert seen == [gpu.current_stream()]
    assert inside not in seen


def test_a_span_has_the_number_of_the_batch_it_works_on():
    gpu, clock = fake_device()
    with record(clock=clock) as trace:
        waiting = None
        for batch in gpu.pinned(trace.batches([megabytes(1), megabytes(1)])):
            uploaded = gpu.upload(batch, non_blocking=True)
            if waiting is not None:
                gpu.step(waiting)  # launched while the next batch is the current one
            waiting = uploaded
        gpu.step(waiting)
    spans = [(s.lane, s.batch) for s in trace.spans if s.lane != "main"]
    assert sorted(spans) == [("copy", 0), ("copy", 1), ("gpu", 0), ("gpu", 1)]


def test_the_picture_and_repr_say_that_it_is_emulated():
    gpu, clock = fake_device()
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(megabytes(1)))
    assert trace.note == "emulated RTX 3090"
    assert repr(gpu) == "emulated RTX 3090 (times of a preset, not of this machine)"


@pytest.mark.parametrize("wrong", [{"ms": -1}, {"occupancy": 0}, {"occupancy": 1.5}])
def test_an_impossible_kernel_is_refused(wrong):
    gpu, _ = fake_device()
    with pytest.raises(ValueError, match="change them"):
        gpu.step(None, **wrong)


def test_a_thread_of_its_own_is_no_stream_of_its_own():
    gpu, clock = fake_device()
    first, second = gpu.pinned([megabytes(4), megabytes(4)])
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(first, non_blocking=True))
        thread = threading.Thread(target=lambda: gpu.upload(second, non_blocking=True))
        thread.start()
        thread.join()
    assert times(trace, "copy") == [(0, 2), (22, 24)]  # behind the step, not beside it
