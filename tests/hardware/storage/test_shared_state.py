import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from course_utils.hardware.storage import shared_state as storage_state
from course_utils.hardware.storage import slow_storage, storage_preset
from course_utils.hardware.storage.calendar import attach, make_state

PRESET = storage_preset("laptop SSD")
forks = pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")


@pytest.fixture
def device():
    return attach(make_state(".", PRESET))


def fork(action, *arguments):
    """Start the action in a forked process."""
    child = multiprocessing.get_context("fork").Process(target=action, args=arguments)
    child.start()
    return child


def ending(child):
    """Return how a process ended; None if it hung."""
    child.join(20)
    code = child.exitcode
    child.kill()
    child.join()
    return code


def interrupted():
    raise KeyboardInterrupt


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("end", [interrupted, pytest.param(killed, marks=forks)])
def test_whoever_ends_inside_the_lock_leaves_it_free_and_the_cache_empty(device, end):
    def end_inside():
        with device.state.locked():
            end()

    device.reserve(1, 0, 100, size=100)
    if end is killed:
        assert ending(fork(end_inside)) == -signal.SIGKILL
    else:
        with pytest.raises(KeyboardInterrupt):
            end_inside()
    device.reserve(1, 0, 100, size=100)
    assert (device.counters().misses, device.counters().hits) == (2, 0)


@forks
def test_a_stopped_holder_is_named_and_waiting_for_it_ends_with_an_interrupt_or_its_death(
    device, monkeypatch
):
    def stop_inside():
        with device.state.locked():
            os.kill(os.getpid(), signal.SIGSTOP)

    monkeypatch.setattr(storage_state, "_PATIENCE_S", 0.1)
    child = fork(stop_inside)
    os.waitpid(child.pid, os.WUNTRACED)  # until it is stopped
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    said = rf"waits for process {child.pid}, which has been in it for 0\.1 s"
    with pytest.warns(RuntimeWarning, match=said), pytest.raises(KeyboardInterrupt):
        device.counters()
    child.kill()
    assert ending(child) == -signal.SIGKILL
    assert device.counters().requests == 0


@pytest.mark.parametrize("how", ["thread", pytest.param("fork", marks=forks)])
def test_threads_take_turns_and_a_forked_child_does_not_own_its_parents_lock(device, how):
    kind = threading if how == "thread" else multiprocessing.get_context("fork")
    entered = kind.Event()

    def enter():
        with device.state.locked():
            entered.set()

    other = (threading.Thread if how == "thread" else kind.Process)(target=enter)
    with device.state.locked():
        other.start()
        assert not entered.wait(0.2)
    assert entered.wait(20)
    other.join()


@forks
def test_two_processes_may_use_two_storages_crosswise_in_threads(device):
    """The system would see a deadlock: each process holds what the other waits for."""
    other, failed = attach(make_state(".", PRESET)), []
    both_inside = multiprocessing.get_context("fork").Barrier(2, timeout=20)

    def ask(wanted):
        try:
            wanted.counters()
        except OSError as error:
            failed.append(error)

    def hold(mine, wanted):
        thread = threading.Thread(target=ask, args=(wanted,))
        with mine.state.locked():
            both_inside.wait()
            thread.start()
            thread.join(0.3)
        thread.join(20)
        assert not thread.is_alive()
        assert failed == []

    child = fork(hold, other, device)
    hold(device, other)
    assert ending(child) == 0


def run_python(program):
    """Make a state in a fresh Python that takes every warning for an error; return its output."""
    make = (
        "import os, signal, sys; from course_utils.hardware.storage.calendar import *\n"
        "from course_utils.hardware.storage.presets import storage_preset\n"
        "folder = make_state('.', storage_preset('laptop SSD'))\n"
    )
    command = [sys.executable, "-W", "error", "-c", make + program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    return run.stdout.strip()


def test_the_state_goes_with_the_process_that_made_it_even_if_it_is_looked_at_not_with_a_fork():
    program = (
        "if hasattr(os, 'fork'):\n    if os.fork() == 0: sys.exit()\n    os.wait()\n"
        "print(os.path.exists(folder), folder); view = attach(folder).state.memory[:9]"
    )
    is_there, folder = run_python(program).split()
    assert is_there == "True"
    assert not Path(folder).exists()


@forks
def test_what_a_killed_process_left_goes_when_the_next_storage_is_made():
    left = run_python("print(folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    os.utime(left, (0, 0))
    mine = make_state(".", PRESET)
    os.utime(mine, (0, 0))
    other = run_python("print(folder)")
    assert not Path(left).exists()
    assert Path(mine).exists()
    assert other != mine


def test_a_state_that_has_gone_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="make a new one with slow_storage"):
        attach(str(tmp_path / "none"))


def no_room(monkeypatch, tmp_path, *full):
    """Let nothing be written in the places that are full."""
    write = Path.write_bytes

    def write_bytes(path, data):
        if any(path.is_relative_to(place) for place in full):
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    monkeypatch.setattr(storage_state.tempfile, "gettempdir", lambda: str(tmp_path))


def test_no_room_in_memory_takes_the_disk_and_none_anywhere_is_one_sentence(tmp_path, monkeypatch):
    no_room(monkeypatch, tmp_path, "/dev/shm")
    made = Path(storage_state.create({}, 100))
    assert made.parent == tmp_path
    no_room(monkeypatch, tmp_path, "/dev/shm", tmp_path)
    with pytest.raises(OSError, match=r"needs .* MB in .*; free some room there"):
        storage_state.create({}, 10**6)
    assert list(tmp_path.iterdir()) == [made]


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
@pytest.mark.parametrize(("free_mb", "in_memory"), [(64, False), (640, True)])
def test_a_small_memory_is_left_to_batches(free_mb, in_memory, tmp_path, monkeypatch):
    class Usage:
        free = free_mb * 10**6

    monkeypatch.setattr(storage_state.shutil, "disk_usage", lambda home: Usage)
    no_room(monkeypatch, tmp_path)
    folder = storage_state.create({}, 5 * 10**6)
    assert Path(folder).is_relative_to("/dev/shm" if in_memory else tmp_path)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_processes_share_counters_and_cache(tmp_path, start_method):
    (tmp_path / "data").write_bytes(bytes(1_000_000))
    fs = slow_storage(tmp_path, "laptop SSD")
    context = multiprocessing.get_context(start_method)
    readers = [context.Process(target=fs.cat_file, args=("data",)) for _ in range(2)]
    for reader in readers:
        reader.start()
    assert [ending(reader) for reader in readers] == [0, 0]
    seen = fs.counters()
    assert (seen.opens, seen.bytes_used, seen.bytes_read) == (2, 2_000_000, 1_000_000)
    assert seen.hit_share == 0.5
