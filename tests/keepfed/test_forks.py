import multiprocessing
import sys
import threading

import pytest
import torch

from course_utils.hardware.gpu import VirtualClock, get_accelerator
from course_utils.hardware.storage import calendar, storage_preset


@pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")
def test_locks_of_other_threads_are_free_after_a_fork():
    folders = [calendar.make_state(".", storage_preset("S3")) for _ in range(2)]
    device = calendar.attach(folders[0])
    gpu, clock = get_accelerator(step_ms=0, emulate=True), VirtualClock()
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with device.state._thread_lock, calendar._attaching, gpu._driver.lock, clock._lock:
            inside.set()
            leave.wait(30)

    def use():
        device.reset_counters()
        calendar.attach(folders[1])
        gpu.step(gpu.upload(torch.ones(3)))
        clock.sleep_until(7)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(20)
    child = multiprocessing.get_context("fork").Process(target=use)
    child.start()
    child.join(10)  # while the thread holds the locks
    code = child.exitcode
    child.kill()
    child.join()
    leave.set()
    thread.join()
    assert code == 0
    use()
