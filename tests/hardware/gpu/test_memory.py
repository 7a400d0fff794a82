import math
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from course_utils.hardware.gpu import checksum
from course_utils.hardware.gpu.emulated import UNREAD_LOSSES
from course_utils.hardware.gpu.memory import HostBlocks
from tests.hardware.fake_device import fake_device, megabytes


@pytest.fixture
def device():
    return fake_device()


def expected(*tensors):
    return checksum(tensors).item()


def prefetch(gpu, batch, *, wait="nothing"):
    """Copy on a stream of its own; `wait` is what is done before the step that reads it."""
    copies, middle, user = gpu.Stream(), gpu.Stream(), gpu.current_stream()
    (pinned,) = gpu.pinned([batch])
    with gpu.stream(copies):
        uploaded = gpu.upload(pinned, non_blocking=True)
        done = copies.record_event()
    match wait:
        case "event":
            user.wait_event(done)
        case "stream":
            user.wait_stream(copies)
        case "a third stream":
            middle.wait_stream(copies)
            user.wait_stream(middle)
        case "host":
            done.synchronize()
        case "ask":
            gpu.pin(batch)  # which takes the host its time
            assert done.query()
        case "be late":
            gpu.pin(batch)
    return gpu.step(uploaded).item()


@pytest.mark.parametrize("wait", ["event", "stream", "a third stream", "host", "ask"])
def test_a_prefetch_with_a_wait_is_right_every_time(wait, device):
    for run in range(20):
        batch = megabytes(1, seed=run)
        assert prefetch(device[0], batch, wait=wait) == expected(batch)


@pytest.mark.parametrize("wait", ["nothing", "be late"])
def test_a_prefetch_without_a_wait_is_wrong_every_time(wait, device):
    for run in range(20):
        assert math.isnan(prefetch(device[0], megabytes(1, seed=run), wait=wait))


def dropped_while_read(gpu, batches, *, guard):
    """Drop a batch of the copy stream while a step reads it, then upload the next one there."""
    user, losses = gpu.current_stream(), []
    copies = user if guard == "one stream" else gpu.Stream()
    for pinned in gpu.pinned(batches):
        if guard == "copies wait":
            copies.wait_stream(user)
        with gpu.stream(copies):
            uploaded = gpu.upload(pinned, non_blocking=True)
        user.wait_stream(copies)
        if guard == "record_stream":
            uploaded.record_stream(user)
        if guard == "record_stream of its own":
            uploaded.record_stream(copies)
        losses.append(gpu.step(uploaded))
        if guard == "read the loss":
            losses[-1].item()
        del uploaded
    return [loss.item() for loss in losses]


GUARDS = [
    "none",
    "record_stream of its own",
    "record_stream",
    "copies wait",
    "read the loss",
    "one stream",
]


@pytest.mark.parametrize("guard", GUARDS)
def test_a_batch_dropped_while_another_stream_reads_it_is_overwritten_without(guard, device):
    batches = [megabytes(1, seed=seed) for seed in range(3)]
    losses = dropped_while_read(device[0], batches, guard=guard)
    right = [expected(batch) for batch in batches]
    if guard in GUARDS[:2]:
        assert all(math.isnan(loss) for loss in losses[:2])
        assert losses[2] == right[2]  # nothing was uploaded after it
    else:
        assert losses == right


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_a_source_overwritten_before_its_copy_was_waited_for_arrives_overwritten_if_pinned(
    pinned, waits, device
):
    gpu, _ = device
    source = gpu.pin(torch.zeros(1000)) if pinned else torch.zeros(1000)
    uploaded = gpu.upload(source, non_blocking=True)
    if waits:
        gpu.current_stream().synchronize()
    source.fill_(1)
    arrives = torch.ones(1000) if pinned and not waits else torch.zeros(1000)
    assert gpu.step(uploaded).item() == expected(arrives)


def test_a_view_of_pinned_memory_is_pinned_and_the_original_of_what_is_handed_over_is_not(device):
    gpu, clock = device
    original = megabytes(2)
    (pinned,) = gpu.pinned([original])
    assert pinned.data_ptr() == original.data_ptr()
    gpu.upload(pinned[1:], non_blocking=True)
    assert clock.ms == 0
    gpu.upload(original, non_blocking=True)
    assert clock.ms == pytest.approx(1 + 2, abs=1e-3)  # behind the first copy


def test_as_by_the_thread_of_a_loader_a_dataclass_is_pinned_only_if_it_can_pin_itself(device):
    @dataclass
    class Plain:
        pulses: torch.Tensor

    class Pinnable(Plain):
        def pin_memory(self):
            raise NotImplementedError  # CUDA only

    gpu, named = device[0], namedtuple("named", "one")
    batches = [{"a": [t, (t, named(t))]} for t in megabytes(0.1).split(9_000)]
    assert all(map(gpu.is_pinned, gpu.pinned(batches)))
    plain, pinnable = gpu.pinned([Plain(torch.ones(2)), Pinnable(torch.ones(2))])
    assert (gpu.is_pinned(plain), gpu.is_pinned(pinnable)) == (False, True)


@pytest.mark.parametrize("data", [torch.ones(3), torch.tensor(2)])
def test_a_kernel_that_did_not_wait_returns_garbage_and_so_do_those_that_use_it(data, device):
    gpu, _ = device
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


def test_an_unread_loss_does_not_keep_its_batch_for_ever(device):
    gpu, _ = device
    batch = gpu.pin(torch.zeros(10))
    losses = [gpu.step(gpu.upload(batch, non_blocking=True)) for _ in range(UNREAD_LOSSES + 1)]
    batch.fill_(1)
    values = [loss.item() for loss in losses]
    assert values == [expected(torch.zeros(10))] + UNREAD_LOSSES * [expected(torch.ones(10))]


def test_memory_is_counted_exactly(device):
    gpu, _ = device
    first = gpu.upload(megabytes(4))
    second = gpu.upload({"a": megabytes(2), "b": [megabytes(1)]})
    assert gpu.memory_allocated() == 7_000_000
    del first
    assert gpu.memory_allocated() == 3_000_000
    second.clear()
    assert gpu.memory_allocated() == 0
    assert gpu.max_memory_allocated() == 7_000_000


def test_what_is_taken_from_the_device_is_kept_for_each_stream_apart_until_memory_is_short():
    gpu, _ = fake_device(memory_gib=0.02)  # 21.5 MB
    for stream in (gpu.current_stream(), gpu.Stream(), gpu.Stream()):
        with gpu.stream(stream):
            for _ in range(3):
                gpu.upload(megabytes(6))
    assert (gpu.memory_allocated(), gpu.memory_reserved()) == (0, 18_000_000)
    assert gpu.smi().memory_used == 18_000_000
    batch = gpu.upload(megabytes(8))
    assert (gpu.memory_allocated(), gpu.memory_reserved()) == (batch.numel() * 4, 8_000_000)


def test_a_full_device_waits_for_memory_that_a_stream_still_uses_or_says_what_to_do():
    gpu, clock = fake_device(memory_gib=0.01)
    batch = gpu.upload(megabytes(6))
    with pytest.raises(torch.OutOfMemoryError, match=r"0\.01 GiB.*0\.00559.*batch_size"):
        gpu.upload(megabytes(6))
    assert gpu.memory_allocated() == 6_000_000
    gpu.step(batch, ms=100)
    batch.record_stream(gpu.current_stream())
    del batch
    gpu.upload(megabytes(6))
    assert clock.ms == 6 + 100 + 6


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64])
def test_a_copy_for_the_device_is_equal_and_on_its_own(dtype):
    table = torch.ones((4, 5), dtype=dtype)
    for source in (table, table[:, 1], table[0, 0], table[:0]):
        copy = HostBlocks().copy(source)
        assert torch.equal(copy, source)
        source.zero_()
        assert copy.all()
        source.fill_(1)


def test_memory_given_back_is_used_again_for_at_least_half_of_what_it_holds():
    for size, fits in ((100, True), (60, True), (101, False), (49, False)):
        blocks = HostBlocks()
        first = blocks.copy(torch.ones(100))
        blocks.give_back(first)
        again = blocks.copy(torch.zeros(size, dtype=torch.int32))
        assert (again.data_ptr() == first.data_ptr()) is fits
        assert again.tolist() == [0] * size
