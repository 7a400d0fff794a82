from threading import Thread

import pytest

from course_utils.hardware.gpu import EmulatedDevices, checksum
from course_utils.measure.trace import record
from tests.hardware.fake_device import FakeClock, megabytes


@pytest.fixture
def gpus():
    clock = FakeClock()
    return EmulatedDevices(2, step_ms=20, clock=clock, sleep_until=clock.sleep_until)


def in_a_thread(work):
    seen = []
    thread = Thread(target=lambda: seen.append(work()))
    thread.start()
    thread.join()
    return seen[0]


def test_gpu_0_is_current_until_another_is_chosen(gpus):
    assert gpus.current() is gpus[0]
    gpus.set_device(1)
    assert gpus.current() is gpus[1]


def test_a_new_thread_starts_with_gpu_0(gpus):
    gpus.set_device(1)
    assert in_a_thread(gpus.current) is gpus[0]


def test_a_thread_chooses_for_itself_alone(gpus):
    def choose():
        gpus.set_device(1)
        return gpus.current()

    assert in_a_thread(choose) is gpus[1]
    assert gpus.current() is gpus[0]


def test_each_has_memory_of_its_own(gpus):
    batch = gpus[1].upload(megabytes(4))
    assert [gpu.memory_allocated() for gpu in gpus] == [0, 4_000_000]
    assert batch.device == "emulated RTX 3090 (GPU 1)"


def test_they_compute_side_by_side(gpus):
    with record(clock=gpus[0]._driver.clock) as trace:
        for gpu in gpus:
            gpu.step(None)
    assert [span.start_ns for span in trace.spans] == [0, 0]
    assert trace.note == "emulated RTX 3090 (GPU 0), emulated RTX 3090 (GPU 1)"


def test_a_step_refuses_a_batch_of_another_gpu(gpus):
    batch = megabytes(1)
    with pytest.raises(RuntimeError, match=r"\(GPU 1\).*\(GPU 0\).*upload"):
        gpus[0].step(gpus[1].upload(batch))
    assert gpus[0].step(gpus[0].upload(batch)).item() == checksum([batch]).item()


@pytest.mark.parametrize("index", [-1, 2])
def test_a_gpu_that_is_not_there_is_refused_in_one_sentence(gpus, index):
    with pytest.raises(ValueError, match=f"There is no GPU {index} here; take a number from 0"):
        gpus.set_device(index)


def test_they_say_that_they_are_emulated(gpus):
    assert len(gpus) == 2
    assert repr(gpus).count("emulated RTX 3090 (GPU") == 2


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="at least 1"):
        EmulatedDevices(0)
    with pytest.raises(ValueError, match="no preset 'GTX'"):
        EmulatedDevices(2, "GTX")
