"""A copy back to the host must be waited for before Python reads it."""

import pytest
import torch

from tests.hardware.fake_device import fake_device


@pytest.fixture
def gpu():
    return fake_device()[0]


def launch_product(gpu, dtype=torch.float32):
    host = torch.arange(100).to(dtype)
    return host * 2, gpu.launch(lambda x: x * 2, gpu.upload(host), ms=5)


def test_a_copy_back_is_garbage_until_its_event_was_waited_for(gpu):
    wanted, product = launch_product(gpu)
    host = product.to("cpu", non_blocking=True)
    done = gpu.current_stream().record_event()
    view = host[:50]
    assert host.isnan().all()
    done.synchronize()
    assert host.equal(wanted)
    assert view.equal(wanted[:50])


def test_an_earlier_event_does_not_make_a_copy_back_right(gpu):
    _, product = launch_product(gpu, torch.int64)
    early = gpu.current_stream().record_event()
    host = product.to("cpu", non_blocking=True)
    early.synchronize()
    assert host.view(torch.uint8).eq(0xA5).all()


def test_a_poll_that_succeeds_is_a_wait(gpu):
    wanted, product = launch_product(gpu)
    host = product.to("cpu", non_blocking=True)
    done = gpu.current_stream().record_event()
    while not done.query():
        assert host.isnan().all()
    assert host.equal(wanted)


def test_a_copy_back_of_garbage_stays_garbage(gpu):
    with gpu.stream(gpu.Stream()):
        _, product = launch_product(gpu)
    host = product.to("cpu", non_blocking=True)  # on a stream that did not wait for the product
    gpu.synchronize()
    assert host.isnan().all()


def test_a_blocking_copy_back_is_right_at_once(gpu):
    wanted, product = launch_product(gpu)
    assert product.to("cpu").equal(wanted)
    assert product.to(gpu.name) is product
    with pytest.raises(ValueError, match="copied to the host only"):
        product.to("cuda")
