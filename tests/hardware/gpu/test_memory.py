import math
from dataclasses import replace

import pytest
import torch

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator, checksum
from course_utils.hardware.gpu.emulated import UNREAD_LOSSES
from course_utils.hardware.gpu.memory import HostBlocks
from tests.hardware.fake_device import fake_device, megabytes


def expected(*tensors):
    return checksum(tensors).item()


def prefetch(gpu, batch, *, wait, clock=None):
    """Copy on a stream of its own; `wait` is what is done before the step that reads it."""
    copies, middle = gpu.Stream(), gpu.Stream()
    (pinned,) = gpu.pinned([batch])
    with gpu.stream(copies):
        uploaded = gpu.upload(pinned, non_blocking=True)
        done = copies.record_event()
    if wait == "event":
        gpu.current_stream().wait_event(done)
    elif wait == "stream":
        gpu.current_stream().wait_stream(copies)
    elif wait == "a third stream":
        middle.wait_stream(copies)
        gpu.current_stream().wait_event(middle.record_event())
    elif wait == "host":
        done.synchronize()
    elif wait == "ask":
        clock.work(1000)
        assert copies.query()
    elif wait == "be late":
        clock.work(1000)
    return gpu.step(uploaded).item()


@pytest.mark.parametrize("wait", ["event", "stream", "a third stream", "host", "ask"])
def test_a_prefetch_with_a_wait_is_right_every_time(wait):
    gpu, clock = fake_device()
    for run in range(20):
        batch = megabytes(1, seed=run)
        assert prefetch(gpu, batch, wait=wait, clock=clock) == expected(batch)


@pytest.mark.parametrize("wait", [None, "be late"])
def test_a_prefetch_without_a_wait_is_wrong_every_time(wait):
    gpu, clock = fake_device()
    losses = [prefetch(gpu, megabytes(1, seed=run), wait=wait, clock=clock) for run in range(20)]
    assert all(math.isnan(loss) for loss in losses)


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


@pytest.mark.parametrize("guard", [None, "record_stream", "copies wait", "read the loss"])
def test_a_batch_dropped_while_another_stream_reads_it_is_overwritten_without(guard):
    gpu, _ = fake_device()
    batches = [megabytes(1, seed=seed) for seed in range(3)]
    losses = dropped_while_read(gpu, batches, guard=guard)
    right = [expected(batch) for batch in batches]
    if guard is None:
        assert all(math.isnan(loss) for loss in losses[:2])
        assert losses[2] == right[2]  # nothing was uploaded after it
    else:
        assert losses == right


def test_a_batch_dropped_on_its_own_stream_is_safe():
    gpu, _ = fake_device()
    batches = [megabytes(1, seed=seed) for seed in range(3)]
    losses = [gpu.step(gpu.upload(pinned, non_blocking=True)) for pinned in gpu.pinned(batches)]
    assert [loss.item() for loss in losses] == [expected(batch) for batch in batches]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_source_overwritten_before_its_copy_was_waited_for_arrives_overwritten_if_pinned(
    pinned, waits
):
    gpu, _ = fake_device()
    source = gpu.pin(torch.zeros(1000)) if pinned else torch.zeros(1000)
    uploaded = gpu.upload(source, non_blocking=True)
    if waits:
        gpu.current_stream().synchronize()
    source.fill_(1)
    arrives = torch.ones(1000) if pinned and not waits else torch.zeros(1000)
    assert gpu.step(uploaded).item() == expected(arrives)


def test_a_view_of_pinned_memory_is_pinned_and_the_original_of_what_is_handed_over_is_not():
    gpu, clock = fake_device()
    original = megabytes(2)
    (pinned,) = gpu.pinned([original])
    assert pinned.data_ptr() == original.data_ptr()
    gpu.upload(pinned[1:], non_blocking=True)
    assert clock.ms == 0
    gpu.upload(original, non_blocking=True)
    assert clock.ms == pytest.approx(1 + 2, abs=1e-3)  # behind the first copy


def test_the_tensors_of_a_nested_batch_are_uploaded_and_the_rest_stays():
    gpu, _ = fake_device()
    uploaded = gpu.upload({"pair": (torch.ones(2), [torch.zeros(3)]), "name": "a"})
    assert uploaded["name"] == "a"
    assert tuple(uploaded["pair"][0].shape) == (2,)
    assert gpu.step(uploaded).item() == expected(torch.ones(2), torch.zeros(3))


@pytest.mark.parametrize("data", [torch.ones(3), torch.ones(3, dtype=torch.int64), torch.tensor(2)])
def test_a_kernel_that_did_not_wait_returns_garbage_and_so_do_those_that_use_it(data):
    gpu, _ = fake_device()
    with gpu.stream(gpu.Stream()):
        (pinned,) = gpu.pinned([data])
        uploaded = gpu.upload(pinned, non_blocking=True)
    once = gpu.launch(lambda t: t * 2, uploaded, ms=1)
    for result in (once, gpu.launch(lambda t: t * 2, once, ms=1)):
        values = result.cpu()
        assert values.shape == data.shape
        assert not torch.equal(values, data * 2)
        assert not torch.equal(values, data * 4)
        assert math.isnan(gpu.step(result).item())


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


def test_a_full_device_waits_for_memory_that_a_stream_still_uses_or_says_what_to_do():
    gpu, clock = fake_device(memory_gib=0.01)
    batch = gpu.upload(megabytes(6))
    with pytest.raises(torch.OutOfMemoryError, match=r"0\.01 GiB.*0\.00559.*batch_size"):
        gpu.upload(megabytes(6))
    assert gpu.memory_allocated() == batch.nbytes
    gpu.step(batch, ms=100)
    batch.record_stream(gpu.current_stream())
    del batch
    gpu.upload(megabytes(6))
    assert clock.ms == 6 + 100 + 6


@pytest.mark.slow
def test_on_the_real_clock_too_only_the_wait_decides():
    preset = replace(PRESETS["RTX 3090"], pinned_gb_s=2.0)
    gpu = EmulatedAccelerator(preset, step_ms=2)
    for run in range(20):
        batch = megabytes(8, seed=run)
        assert math.isnan(prefetch(gpu, batch, wait=None))
        assert prefetch(gpu, batch, wait="event") == expected(batch)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5)])
def test_a_copy_for_the_device_is_equal_and_on_its_own(dtype, shape):
    source = torch.ones(shape, dtype=dtype)
    copy = HostBlocks().copy(source)
    assert torch.equal(copy, source)
    source.zero_()
    assert copy.all()


@pytest.mark.parametrize(("size", "fits"), [(100, True), (60, True), (101, False), (49, False)])
def test_memory_given_back_is_used_again_for_at_least_half_of_what_it_holds(size, fits):
    blocks = HostBlocks()
    first = blocks.copy(torch.ones(100))
    address = first.data_ptr()
    blocks.give_back(first)
    again = blocks.copy(torch.zeros(size, dtype=torch.int32))
    assert (again.data_ptr() == address) is fits
    assert again.tolist() == [0] * size


def test_unused_memory_is_not_hoarded_and_a_column_of_a_table_is_copied_too():
    blocks = HostBlocks(keep=2)
    for copy in [blocks.copy(torch.ones(10)) for _ in range(5)]:
        blocks.give_back(copy)
    table = torch.arange(300, dtype=torch.float32).view(100, 3)
    assert torch.equal(blocks.copy(table[:, 1]), table[:, 1])
    assert len(blocks._spare) == 2
