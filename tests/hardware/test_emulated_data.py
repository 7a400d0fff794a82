import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import pytest
import torch

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator, checksum
from course_utils.hardware.gpu.emulated import UNREAD_LOSSES
from tests.hardware.fake_device import fake_device, megabytes


def expected(*tensors):
    return checksum(tensors).item()


def prefetch(gpu, batch, *, wait):
    """Copy on a stream of its own; `wait` is what has to happen before the step."""
    copies = gpu.Stream()
    (pinned,) = gpu.pinned([batch])
    with gpu.stream(copies):
        uploaded = gpu.upload(pinned, non_blocking=True)
        done = copies.record_event()
    if wait == "event":
        gpu.current_stream().wait_event(done)
    elif wait == "stream":
        gpu.current_stream().wait_stream(copies)
    elif wait == "host":
        done.synchronize()
    return gpu.step(uploaded).item()


def test_the_loss_is_the_checksum_of_what_was_uploaded():
    gpu, _ = fake_device()
    batch = megabytes(4)
    assert gpu.step(gpu.upload(batch)).item() == expected(batch)


@pytest.mark.parametrize("wait", ["event", "stream", "host"])
def test_a_prefetch_with_a_wait_is_right_every_time(wait):
    gpu, _ = fake_device()
    for run in range(20):
        batch = megabytes(1, seed=run)
        assert prefetch(gpu, batch, wait=wait) == expected(batch)


def test_a_prefetch_without_a_wait_is_wrong_every_time():
    gpu, _ = fake_device()
    losses = [prefetch(gpu, megabytes(1, seed=run), wait=None) for run in range(20)]
    assert all(math.isnan(loss) for loss in losses)


def test_being_late_enough_is_not_waiting():
    gpu, clock = fake_device()
    (pinned,) = gpu.pinned([megabytes(1)])
    with gpu.stream(gpu.Stream()):
        uploaded = gpu.upload(pinned, non_blocking=True)
    clock.work(1000)
    assert math.isnan(gpu.step(uploaded).item())


def test_asking_a_stream_whether_it_is_done_counts_as_waiting():
    gpu, clock = fake_device()
    batch, copies = megabytes(1), gpu.Stream()
    (pinned,) = gpu.pinned([batch])
    with gpu.stream(copies):
        uploaded = gpu.upload(pinned, non_blocking=True)
    clock.work(1000)
    assert copies.query()
    assert gpu.step(uploaded).item() == expected(batch)


def test_knowledge_travels_through_a_third_stream():
    gpu, _ = fake_device()
    batch, copies, middle = megabytes(1), gpu.Stream(), gpu.Stream()
    (pinned,) = gpu.pinned([batch])
    with gpu.stream(copies):
        uploaded = gpu.upload(pinned, non_blocking=True)
    middle.wait_stream(copies)
    gpu.current_stream().wait_event(middle.record_event())
    assert gpu.step(uploaded).item() == expected(batch)


def dropped_while_read(gpu, batches, *, guard):
    """Drop a batch of the copy stream while a step reads it, then upload the next one there."""
    copies, losses = gpu.Stream(), []
    for pinned in gpu.pinned(batches):
        if guard == "copies wait":
            copies.wait_stream(gpu.current_stream())
        with gpu.stream(copies):
            uploaded = gpu.upload(pinned, non_blocking=True)
        gpu.current_stream().wait_stream(copies)
        if guard == "record_stream":
            uploaded.record_stream(gpu.current_stream())
        losses.append(gpu.step(uploaded))
        if guard == "read the loss":
            losses[-1].item()
        del uploaded
    return [loss.item() for loss in losses]


def test_a_batch_dropped_while_another_stream_reads_it_is_overwritten():
    gpu, _ = fake_device()
    batches = [megabytes(1, seed=seed) for seed in range(3)]
    first, second, last = dropped_while_read(gpu, batches, guard=None)
    assert math.isnan(first)
    assert math.isnan(second)
    assert last == expected(batches[2])  # nothing was uploaded after it


@pytest.mark.parametrize("guard", ["record_stream", "copies wait", "read the loss"])
def test_a_dropped_batch_is_safe_with(guard):
    gpu, _ = fake_device()
    batches = [megabytes(1, seed=seed) for seed in range(3)]
    losses = dropped_while_read(gpu, batches, guard=guard)
    assert losses == [expected(batch) for batch in batches]


def test_a_batch_dropped_on_its_own_stream_is_safe():
    gpu, _ = fake_device()
    batches = [megabytes(1, seed=seed) for seed in range(3)]
    losses = [gpu.step(gpu.upload(pinned, non_blocking=True)) for pinned in gpu.pinned(batches)]
    assert [loss.item() for loss in losses] == [expected(batch) for batch in batches]


def test_a_pinned_source_overwritten_too_early_arrives_overwritten():
    gpu, _ = fake_device()
    staging = gpu.pin(torch.zeros(1000))
    uploaded = gpu.upload(staging, non_blocking=True)
    staging.fill_(1)
    assert gpu.step(uploaded).item() == expected(torch.ones(1000))


def test_a_pinned_source_may_be_overwritten_after_its_copy_was_waited_for():
    gpu, _ = fake_device()
    staging = gpu.pin(torch.zeros(1000))
    uploaded = gpu.upload(staging, non_blocking=True)
    gpu.current_stream().synchronize()
    staging.fill_(1)
    assert gpu.step(uploaded).item() == expected(torch.zeros(1000))


@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_pageable_source_may_be_overwritten_at_once(non_blocking):
    gpu, _ = fake_device()
    source = torch.zeros(1000)
    uploaded = gpu.upload(source, non_blocking=non_blocking)
    source.fill_(1)
    assert gpu.step(uploaded).item() == expected(torch.zeros(1000))


def test_a_view_of_pinned_memory_is_pinned():
    gpu, clock = fake_device()
    pinned = gpu.pin(megabytes(2))
    before = clock.now
    gpu.upload(pinned[1:], non_blocking=True)
    assert clock.now == before


def test_handing_over_pinned_leaves_the_original_pageable():
    gpu, clock = fake_device()
    original = megabytes(2)
    (pinned,) = gpu.pinned([original])
    assert pinned.data_ptr() == original.data_ptr()
    gpu.upload(original, non_blocking=True)
    assert clock.ms == 2


class Pair(NamedTuple):
    left: torch.Tensor
    right: list[torch.Tensor]


@dataclass(frozen=True)
class Event:
    pulses: torch.Tensor
    name: str


def test_a_nested_batch_keeps_its_shape_and_what_is_no_tensor():
    gpu, _ = fake_device()
    batch = {"pair": Pair(torch.ones(2), [torch.zeros(3)]), "event": Event(torch.ones(4), "a")}
    uploaded = gpu.upload(batch)
    assert type(uploaded["pair"]) is Pair
    assert uploaded["event"].name == "a"
    assert tuple(uploaded["event"].pulses.shape) == (4,)
    loss = gpu.step(uploaded).item()
    assert loss == expected(torch.ones(2), torch.zeros(3), torch.ones(4))


def test_a_batch_that_was_not_uploaded_is_refused():
    gpu, _ = fake_device()
    with pytest.raises(ValueError, match=r"gpu\.upload\(batch\)"):
        gpu.step({"pulses": torch.ones(3)})


def test_a_kernel_returns_new_tensors_on_the_device():
    gpu, clock = fake_device()
    image = torch.arange(4)
    flipped = gpu.launch(lambda t: t.flip(0), gpu.upload(image), ms=5)
    before = clock.ms
    assert flipped.cpu().tolist() == [3, 2, 1, 0]
    assert clock.ms >= before + 5


@pytest.mark.parametrize("data", [torch.ones(3), torch.ones(3, dtype=torch.int64), torch.tensor(2)])
def test_a_kernel_that_did_not_wait_returns_garbage(data):
    gpu, _ = fake_device()
    with gpu.stream(gpu.Stream()):
        (pinned,) = gpu.pinned([data])
        uploaded = gpu.upload(pinned, non_blocking=True)
    result = gpu.launch(lambda t: t * 2, uploaded, ms=1)
    values = result.cpu()
    assert values.shape == data.shape
    assert not torch.equal(values, data * 2)
    assert math.isnan(gpu.step(result).item())


def test_garbage_stays_garbage_through_the_next_kernel():
    gpu, _ = fake_device()
    with gpu.stream(gpu.Stream()):
        (pinned,) = gpu.pinned([torch.ones(3)])
        uploaded = gpu.upload(pinned, non_blocking=True)
    once = gpu.launch(lambda t: t * 2, uploaded, ms=1)
    twice = gpu.launch(lambda t: t * 2, once, ms=1)
    assert twice.cpu().isnan().all()


def test_an_unread_loss_does_not_keep_its_batch_for_ever():
    gpu, _ = fake_device()
    batch = gpu.pin(torch.zeros(10))
    losses = [gpu.step(gpu.upload(batch, non_blocking=True)) for _ in range(UNREAD_LOSSES + 1)]
    batch.fill_(1)
    values = [loss.item() for loss in losses]
    assert values == [expected(torch.zeros(10))] + UNREAD_LOSSES * [expected(torch.ones(10))]


def test_memory_is_counted_exactly():
    gpu, _ = fake_device()
    first = gpu.upload(megabytes(4))
    second = gpu.upload({"a": megabytes(2), "b": [megabytes(1)]})
    assert gpu.memory_allocated() == 7_000_000
    del first
    assert gpu.memory_allocated() == 3_000_000
    second.clear()
    assert gpu.memory_allocated() == 0
    assert gpu.max_memory_allocated() == 7_000_000


def test_recorded_memory_is_free_only_when_that_stream_has_done_its_work():
    gpu, clock = fake_device()
    copies = gpu.Stream()
    with gpu.stream(copies):
        batch = gpu.upload(megabytes(1))
    gpu.current_stream().wait_stream(copies)
    gpu.step(batch)
    batch.record_stream(gpu.current_stream())
    del batch
    assert gpu.memory_allocated() == 1_000_000
    clock.work(20)
    assert gpu.memory_allocated() == 0


def test_a_full_device_says_what_to_do():
    gpu, _ = fake_device(memory_gib=0.01)
    kept = gpu.upload(megabytes(6))
    with pytest.raises(torch.OutOfMemoryError, match=r"0\.01 GiB.*0\.00559.*batch_size"):
        gpu.upload(megabytes(6))
    assert gpu.memory_allocated() == kept.nbytes


def test_a_full_device_waits_for_memory_that_a_stream_still_uses():
    gpu, clock = fake_device(memory_gib=0.01)
    batch = gpu.upload(megabytes(6))
    gpu.step(batch, ms=100)
    batch.record_stream(gpu.current_stream())
    del batch
    gpu.upload(megabytes(6))
    assert clock.ms == 6 + 100 + 6


def test_a_device_tensor_says_how_to_compute_with_it():
    gpu, _ = fake_device()
    tensor = gpu.upload(torch.ones(2, 3))
    assert (len(tensor), tensor.numel(), tensor.size(1)) == (2, 6, 3)
    assert repr(tensor) == "DeviceTensor((2, 3), torch.float32, 'emulated RTX 3090')"
    with pytest.raises(AttributeError, match=r"gpu\.launch.*cpu\(\)"):
        tensor.mean()


@pytest.mark.slow
def test_on_the_real_clock_too_only_the_wait_decides():
    preset = replace(PRESETS["RTX 3090"], pinned_gb_s=2.0)
    gpu = EmulatedAccelerator(preset, step_ms=2)
    for run in range(20):
        batch = megabytes(8, seed=run)
        assert math.isnan(prefetch(gpu, batch, wait=None))
        assert prefetch(gpu, batch, wait="event") == expected(batch)
