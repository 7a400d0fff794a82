import multiprocessing
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_utils.hardware.storage import shared_state as storage_state
from course_utils.hardware.storage import storage_preset
from course_utils.hardware.storage.calendar import attach, make_state
from tests.fixtures import run_python

PRESET = storage_preset("laptop SSD")
forks = pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")


@pytest.fixture
def device():
    return attach(make_state(".", PRESET))


def test_interrupt_inside_the_lock_frees_it(device):
    device.reserve(0, 0, 100, size=100)
    with pytest.raises(KeyboardInterrupt), device.state.locked():
        raise KeyboardInterrupt
    device.reserve(0, 0, 100, size=100)
    assert (device.counters().misses, device.counters().hits) == (2, 0)


@forks
def test_process_killed_inside_the_lock_frees_it(device):
    def die_inside():
        with device.state.locked():
            os.kill(os.getpid(), signal.SIGKILL)

    device.reserve(0, 0, 100, size=100)
    child = multiprocessing.get_context("fork").Process(target=die_inside)
    child.start()
    child.join(20)
    assert child.exitcode == -signal.SIGKILL
    device.reserve(0, 0, 100, size=100)
    assert (device.counters().misses, device.counters().hits) == (2, 0)


@pytest.mark.parametrize("how", ["Thread", pytest.param("Process", marks=forks)])
def test_threads_exclude_each_other_and_a_fork_holds_no_lock(device, how):
    kind = threading if how == "Thread" else multiprocessing.get_context("fork")
    entered = kind.Event()

    def enter():
        with device.state.locked():
            entered.set()

    other = getattr(kind, how)(target=enter)
    with device.state.locked():
        other.start()
        assert not entered.wait(0.2)
    assert entered.wait(20)
    other.join()


def in_new_python(program):
    """Create a state in a new Python with warnings as errors; return its output."""
    make = (
        "import os, signal, sys; from course_utils.hardware.storage.calendar import *\n"
        "from course_utils.hardware.storage.presets import storage_preset\n"
        "folder = make_state('.', storage_preset('laptop SSD'))\n"
    )
    run = run_python("-W", "error", "-c", make + program, timeout=60)
    assert run.stderr == ""
    return run.stdout.strip()


def test_state_is_removed_with_its_creator_but_not_with_a_fork():
    program = (
        "if hasattr(os, 'fork'):\n    if os.fork() == 0: sys.exit()\n    os.wait()\n"
        "print(os.path.exists(folder), folder); view = attach(folder).state.memory[:9]"
    )
    is_there, folder = in_new_python(program).split()
    assert is_there == "True"
    assert not Path(folder).exists()


@forks
def test_leftovers_of_a_killed_process_are_removed():
    with pytest.raises(FileNotFoundError, match="Create a new one with slow_storage"):
        attach("none")
    left = in_new_python("print(folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    os.utime(left, (0, 0))
    mine = make_state(".", PRESET)
    os.utime(mine, (0, 0))
    other = in_new_python("print(folder)")
    assert not Path(left).exists()
    assert Path(mine).exists()
    assert other != mine


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
def test_small_memory_is_left_to_batches(tmp_path, monkeypatch):
    monkeypatch.setattr(storage_state.tempfile, "gettempdir", lambda: str(tmp_path))
    for free_mb, place in ((64, tmp_path), (640, "/dev/shm")):
        usage = SimpleNamespace(free=free_mb * 10**6)
        monkeypatch.setattr(storage_state.shutil, "disk_usage", lambda home, usage=usage: usage)
        folder = storage_state.create({}, 5 * 10**6)
        assert Path(folder).is_relative_to(place)
        shutil.rmtree(folder)
