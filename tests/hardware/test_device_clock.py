import threading

import pytest
import torch

from course_utils.hardware.gpu import VirtualTime, timed_accelerator
from course_utils.hardware.gpu.clock import RealTime
from course_utils.measure.trace import record

MS = 1_000_000


def test_virtual_time_passes_only_by_waiting():
    clock = VirtualTime()
    clock.sleep_until(5 * MS)
    clock.sleep_until(3 * MS)  # that is over
    assert clock() == 5 * MS


def test_virtual_time_is_one_for_all_threads():
    clock = VirtualTime()
    threads = [threading.Thread(target=clock.sleep_until, args=(ms * MS,)) for ms in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock() == 7 * MS


def test_real_time_is_waited_for():
    clock = RealTime()
    end = clock() + 2 * MS
    clock.sleep_until(end)
    assert clock() >= end
    clock.sleep_until(0)


def test_the_times_of_an_emulated_device_are_exact_on_its_clock():
    gpu, clock = timed_accelerator("RTX 3090", step_ms=3, emulate=True)
    with record(clock=clock) as trace:
        gpu.step(gpu.upload(torch.zeros(12_900, dtype=torch.uint8))).item()
    assert [(span.start_ns, span.end_ns) for span in trace.spans] == [(0, 1000), (1000, 3_001_000)]
    assert "emulated RTX 3090" in trace.note


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="There is no preset"):
        timed_accelerator("GTX 1", emulate=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_real_device_comes_with_real_time():
    gpu, clock = timed_accelerator(step_ms=1)
    assert not gpu.emulated
    assert isinstance(clock, RealTime)
