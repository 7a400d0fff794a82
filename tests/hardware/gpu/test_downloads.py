"""The host must wait for a copy from the device before Python reads it."""

import pytest
import torch

from tests.hardware.fake_device import fake_device


@pytest.fixture
def gpu():
    return fake_device()[0]


def launch_product(gpu, dtype=torch.float32):
    host = torch.arange(100).to(dtype)
    return host * 2, gpu.launch(lambda x: x * 2, gpu.upload(host), ms=5)


def test_download_is_garbage_until_the_host_waits_for_its_event(gpu):
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


def test_waiting_for_an_earlier_event_is_not_enough(gpu):
    _, product = launch_product(gpu, torch.int64)
    early = gpu.current_stream().record_event()
    host = product.to("cpu", non_blocking=True)
    early.synchronize()
    assert host.view(torch.uint8).eq(0xA5).all()


def test_download_of_garbage_stays_garbage(gpu):
    with gpu.stream(gpu.Stream()):
        _, product = launch_product(gpu)
    host = product.to("cpu", non_blocking=True)  # the stream did not wait for the product
    gpu.synchronize()
    assert host.isnan().all()


def test_blocking_download_is_correct_immediately(gpu):
    wanted, product = launch_product(gpu)
    assert product.to("cpu").equal(wanted)
    assert product.to("cuda") is product
    with pytest.raises(ValueError, match="only be copied to the host"):
        product.to("meta")
