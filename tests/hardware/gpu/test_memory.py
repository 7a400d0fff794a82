import math
from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from course_utils.hardware.gpu import checksum
from tests.hardware.fake_device import fake_device, megabytes


@pytest.fixture
def device():
    return fake_device()


def expected(*tensors):
    return checksum(tensors).item()


def prefetch(gpu, batch, *, wait="nothing"):
    """Copy on a separate stream; `wait` runs before the step that reads the copy."""
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
            gpu.pin(batch)  # takes time on the host
            assert done.query()
        case "be late":
            gpu.pin(batch)
    return gpu.step(uploaded).item()


def test_prefetch_is_always_correct_with_a_wait_and_always_wrong_without(device):
    for run in range(10):
        batch = megabytes(1, seed=run)
        for wait in ("event", "stream", "a third stream", "host", "ask"):
            assert prefetch(device[0], batch, wait=wait) == expected(batch), wait
        for wait in ("nothing", "be late"):
            assert math.isnan(prefetch(device[0], batch, wait=wait)), wait


def dropped_while_read(gpu, batches, *, guard):
    """Drop a batch of the copy stream while a step reads it, then upload the next batch there."""
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


def test_batch_dropped_during_a_read_is_overwritten():
    batches = [megabytes(1, seed=seed) for seed in range(3)]
    right = [expected(batch) for batch in batches]
    for guard in "none", "record_stream of its own":
        *losses, last = dropped_while_read(fake_device()[0], batches, guard=guard)
        assert all(map(math.isnan, losses)), guard
        assert last == right[2]  # no upload follows it
    for guard in "record_stream", "copies wait", "read the loss", "one stream":
        assert dropped_while_read(fake_device()[0], batches, guard=guard) == right, guard


def test_overwriting_a_pinned_source_too_early_changes_the_copy(device):
    gpu, _ = device
    for pinned, waits in ((False, False), (False, True), (True, False), (True, True)):
        source = gpu.pin(torch.zeros(1000)) if pinned else torch.zeros(1000)
        uploaded = gpu.upload(source, non_blocking=True)
        if waits:
            gpu.current_stream().synchronize()
        source.fill_(1)
        arrives = torch.ones(1000) if pinned and not waits else torch.zeros(1000)
        assert gpu.step(uploaded).item() == expected(arrives), (pinned, waits)


def test_view_of_pinned_memory_is_pinned_but_its_source_is_not(device):
    gpu, clock = device
    original = megabytes(2)
    (pinned,) = gpu.pinned([original])
    assert pinned.data_ptr() == original.data_ptr()
    gpu.upload(pinned[1:], non_blocking=True)
    assert clock.ms == 0
    gpu.upload(original, non_blocking=True)
    assert clock.ms == pytest.approx(1 + 2, abs=1e-3)  # after the first copy


def test_pinned_dataclass_needs_its_own_method_as_in_a_loader(device):
    @dataclass
    class Plain:
        pulses: torch.Tensor

    class Pinnable(Plain):
        def pin_memory(self):
            raise NotImplementedError  # real pinning needs CUDA

    gpu, named = device[0], namedtuple("named", "one")
    batches = [{"a": [t, (t, named(t))]} for t in megabytes(0.1).split(9_000)]
    assert all(map(gpu.is_pinned, gpu.pinned(batches)))
    plain, pinnable = gpu.pinned([Plain(torch.ones(2)), Pinnable(torch.ones(2))])
    assert (gpu.is_pinned(plain), gpu.is_pinned(pinnable)) == (False, True)


def test_kernel_without_a_wait_and_its_users_return_garbage(device):
    gpu, _ = device
    for data in (torch.ones(3), torch.tensor(2)):
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


def test_freed_memory_is_kept_per_stream_until_memory_is_short():
    gpu, _ = fake_device(memory_gib=0.02)  # 21.5 MB
    for stream in (gpu.current_stream(), gpu.Stream(), gpu.Stream()):
        with gpu.stream(stream):
            for _ in range(3):
                gpu.upload(megabytes(6))
    assert (gpu.memory_allocated(), gpu.memory_reserved()) == (0, 18_000_000)
    assert gpu.smi().memory_used == 18_000_000
    batch = gpu.upload(megabytes(8))
    assert (gpu.memory_allocated(), gpu.memory_reserved()) == (batch.numel() * 4, 8_000_000)


def test_full_device_waits_for_memory_in_use_or_raises():
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


def launch_product(gpu, dtype=torch.float32):
    host = torch.arange(100).to(dtype)
    return host * 2, gpu.launch(lambda x: x * 2, gpu.upload(host), ms=5)


def test_download_is_garbage_until_the_host_waits_for_its_event(device):
    gpu, _ = device
    wanted, product = launch_product(gpu)
    host = product.to("cpu", non_blocking=True)
    done = gpu.current_stream().record_event()
    view = host[:50]
    assert host.isnan().all()
    done.synchronize()
    assert host.equal(wanted)
    assert view.equal(wanted[:50])
    polled = product.to("cpu", non_blocking=True)
    done = gpu.current_stream().record_event()
    while not done.query():  # a successful query counts as a wait
        assert polled.isnan().all()
    assert polled.equal(wanted)
    assert product.to("cpu").equal(wanted)  # a blocking copy is right at once
    assert product.to("cuda") is product
    with pytest.raises(ValueError, match="only be copied to the host"):
        product.to("meta")


def test_download_after_the_event_or_of_garbage_stays_garbage(device):
    gpu, _ = device
    _, product = launch_product(gpu, torch.int64)
    early = gpu.current_stream().record_event()
    host = product.to("cpu", non_blocking=True)
    early.synchronize()
    assert host.view(torch.uint8).eq(0xA5).all()
    with gpu.stream(gpu.Stream()):
        _, product = launch_product(gpu)
    host = product.to("cpu", non_blocking=True)  # the stream did not wait for the product
    gpu.synchronize()
    assert host.isnan().all()
