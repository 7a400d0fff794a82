"""A process forked while a thread holds a lock begins with that lock free."""

import gc
import multiprocessing
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from course_utils.hardware.gpu import VirtualClock, get_accelerator
from course_utils.hardware.storage import calendar, storage_preset

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")
S3 = storage_preset("S3")


def storage() -> tuple[Any, Callable[[], Any]]:
    device = calendar.attach(calendar.make_state(".", S3))
    return device.state._thread_lock, device.reset_counters


def another_storage() -> tuple[Any, Callable[[], Any]]:
    folder = calendar.make_state(".", S3)
    return calendar._attaching, lambda: calendar.attach(folder)


def gpu() -> tuple[Any, Callable[[], Any]]:
    device: Any = get_accelerator(step_ms=0, emulate=True)
    return device._driver.lock, lambda: device.step(device.upload(torch.ones(3)))


def clock() -> tuple[Any, Callable[[], Any]]:
    virtual = VirtualClock()
    return virtual._lock, lambda: virtual.sleep_until(7)


@pytest.mark.parametrize("make", [storage, another_storage, gpu, clock])
def test_a_fork_does_not_wait_for_a_thread_that_it_has_not(make: Callable[[], Any]) -> None:
    lock, use = make()
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(20)
    child = multiprocessing.get_context("fork").Process(target=use)
    child.start()
    child.join(10)  # while the thread is inside
    code = child.exitcode
    child.kill()
    child.join()
    leave.set()
    thread.join()
    assert code == 0
    use()


def test_what_has_a_lock_may_go() -> None:
    clock = VirtualClock()
    reference = weakref.ref(clock)
    del clock
    gc.collect()
    assert reference() is None
