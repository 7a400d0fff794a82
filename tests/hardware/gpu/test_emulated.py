from threading import Thread

import pytest
import torch

from course_utils.hardware.gpu import EmulatedDevices, checksum
from course_utils.measure.trace import record
from tests.hardware.fake_device import FakeClock, fake_device, megabytes


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
    assert trace.note == "emulated RTX 3090"


def test_a_step_that_cannot_be_is_refused():
    gpu, _ = fake_device()
    for wrong in ({"ms": -1}, {"occupancy": 0}, {"occupancy": 1.5}):
        with pytest.raises(ValueError, match="change them"):
            gpu.step(None, **wrong)
    with pytest.raises(ValueError, match=r"gpu\.upload\(batch\)"):
        gpu.step({"pulses": torch.ones(3)})


def test_a_kernel_returns_new_tensors_on_the_device():
    gpu, clock = fake_device()
    flipped = gpu.launch(lambda t: t.flip(0), gpu.upload(torch.arange(4)), ms=5)
    before = clock.ms
    assert flipped.cpu().tolist() == [3, 2, 1, 0]
    assert clock.ms >= before + 5


def test_a_device_tensor_says_how_to_compute_with_it():
    gpu, _ = fake_device()
    tensor = gpu.upload(torch.ones(2, 3))
    assert (len(tensor), tensor.numel(), tensor.size(1)) == (2, 6, 3)
    assert repr(tensor) == "DeviceTensor((2, 3), torch.float32, 'emulated RTX 3090')"
    with pytest.raises(AttributeError, match=r"gpu\.launch.*cpu\(\)"):
        tensor.mean()


@pytest.fixture
def gpus():
    return EmulatedDevices(2, step_ms=20, clock=FakeClock())


def in_a_thread(work):
    seen = []
    thread = Thread(target=lambda: seen.append(work()))
    thread.start()
    thread.join()
    return seen[0]


def test_each_thread_chooses_its_gpu_and_starts_with_gpu_0(gpus):
    assert gpus.current() is gpus[0]
    gpus.set_device(1)
    assert gpus.current() is gpus[1]
    assert in_a_thread(gpus.current) is gpus[0]
    gpus.set_device(0)
    assert in_a_thread(lambda: gpus.set_device(1) or gpus.current()) is gpus[1]
    assert gpus.current() is gpus[0]


def test_each_gpu_has_memory_of_its_own_and_refuses_what_is_on_another(gpus):
    host = megabytes(4)
    batch = gpus[1].upload(host)
    assert [gpu.memory_allocated() for gpu in gpus] == [0, 4_000_000]
    assert batch.device == "emulated RTX 3090 (GPU 1)"
    with pytest.raises(RuntimeError, match=r"\(GPU 1\).*\(GPU 0\).*upload"):
        gpus[0].step(batch)
    assert gpus[0].step(gpus[0].upload(host)).item() == checksum([host]).item()


def test_gpus_compute_side_by_side(gpus):
    with record(clock=gpus[0]._driver.clock) as trace:
        for gpu in gpus:
            gpu.step(None)
    assert [span.start_ns for span in trace.spans] == [0, 0]
    assert trace.note == "emulated RTX 3090 (GPU 0), emulated RTX 3090 (GPU 1)"
    assert repr(gpus) == f"EmulatedDevices({trace.note})"


def test_gpus_that_are_not_there_are_refused_in_one_sentence(gpus):
    for index in (-1, 2):
        with pytest.raises(ValueError, match=f"There is no GPU {index} here; take a number from 0"):
            gpus.set_device(index)
    with pytest.raises(ValueError, match="at least 1"):
        EmulatedDevices(0)
    with pytest.raises(ValueError, match="no preset 'GTX'"):
        EmulatedDevices(2, "GTX")
