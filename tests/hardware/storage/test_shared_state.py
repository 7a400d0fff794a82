from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_utils.hardware.storage import shared_state as storage_state
from course_utils.hardware.storage import slow_storage, storage_preset
from course_utils.hardware.storage.calendar import attach, make_state

PRESET = storage_preset("laptop SSD")
forks = pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")


def in_a_fork(action: Callable[[], None]) -> int | None:
    """Run the action in a forked process; return how it ended, None if it hung."""
    context: Any = multiprocessing.get_context("fork")
    child = context.Process(target=action)
    child.start()
    child.join(20)
    code: int | None = child.exitcode
    child.kill()
    child.join()
    return code


@forks
def test_a_process_killed_inside_the_lock_leaves_the_lock_free_and_the_cache_empty() -> None:
    device = attach(make_state(".", PRESET))
    device.reserve(1, 0, 100, size=100)

    def die_inside() -> None:
        with device.state.locked():
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_a_fork(die_inside) == -signal.SIGKILL
    device.reserve(1, 0, 100, size=100)
    assert (device.counters().misses, device.counters().hits) == (2, 0)


def test_an_interrupt_inside_the_lock_leaves_the_lock_free_and_the_cache_empty() -> None:
    device = attach(make_state(".", PRESET))
    device.reserve(1, 0, 100, size=100)
    with pytest.raises(KeyboardInterrupt), device.state.locked():
        raise KeyboardInterrupt
    device.reserve(1, 0, 100, size=100)
    assert (device.counters().misses, device.counters().hits) == (2, 0)


@forks
def test_a_fork_taken_while_a_thread_holds_the_lock_does_not_hang() -> None:
    device = attach(make_state(".", PRESET))
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with device.state.locked():
            inside.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(20)
    context: Any = multiprocessing.get_context("fork")
    child = context.Process(target=device.reset_counters)
    child.start()
    leave.set()
    thread.join()
    child.join(20)
    code = child.exitcode
    child.kill()
    child.join()
    assert code == 0


@forks
def test_a_forked_child_does_not_own_its_parents_lock() -> None:
    device = attach(make_state(".", PRESET))
    context: Any = multiprocessing.get_context("fork")
    entered = context.Event()

    def enter() -> None:
        with device.state.locked():
            entered.set()

    with device.state.locked():
        child = context.Process(target=enter)
        child.start()
        assert not entered.wait(0.3)
    child.join(20)
    assert child.exitcode == 0
    assert entered.is_set()


def test_threads_take_turns() -> None:
    device, entered = attach(make_state(".", PRESET)), threading.Event()

    def enter() -> None:
        with device.state.locked():
            entered.set()

    thread = threading.Thread(target=enter)
    with device.state.locked():
        thread.start()
        assert not entered.wait(0.3)
    assert entered.wait(20)
    thread.join()


def run_python(program: str) -> str:
    """Run a program in a fresh Python that takes every warning for an error; return its output."""
    command = [sys.executable, "-W", "error", "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    return run.stdout.strip()


MAKE = "import os, signal, sys; from course_utils.hardware.storage.calendar import *\n"
MAKE += "from course_utils.hardware.storage.presets import storage_preset\n"
MAKE += "folder = make_state('.', storage_preset('laptop SSD'))\n"


def test_the_state_goes_with_the_process_that_made_it() -> None:
    folder = run_python(MAKE + "print(folder)")
    assert folder
    assert not Path(folder).exists()


def test_a_reader_still_open_at_the_end_does_not_keep_the_state() -> None:
    folder = run_python(MAKE + "print(folder); view = attach(folder).state.memory[:9]")
    assert not Path(folder).exists()


@forks
def test_the_end_of_a_child_leaves_the_state_in_place() -> None:
    program = "if os.fork() == 0: sys.exit()\nos.wait(); print(os.path.exists(folder))"
    assert run_python(MAKE + program) == "True"


@forks
def test_what_a_killed_process_left_goes_when_the_next_storage_is_made() -> None:
    left = run_python(MAKE + "print(folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    os.utime(left, (0, 0))
    mine = make_state(".", PRESET)
    os.utime(mine, (0, 0))
    other = run_python(MAKE + "print(folder)")
    assert not Path(left).exists()
    assert Path(mine).exists()
    assert other != mine


def test_a_state_that_has_gone_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make a new one with slow_storage"):
        attach(str(tmp_path / "none"))


def test_no_room_in_memory_takes_the_disk_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.is_relative_to("/dev/shm"):
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(storage_state.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = storage_state.create({}, 100)
    assert Path(folder).parent == tmp_path
    shutil.rmtree(folder)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
@pytest.mark.parametrize(("free_mb", "in_memory"), [(64, False), (640, True)])
def test_a_small_memory_is_left_to_the_batches_of_workers(
    free_mb: int, in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = free_mb * 10**6

    monkeypatch.setattr(storage_state.shutil, "disk_usage", lambda home: Usage)
    monkeypatch.setattr(storage_state.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = storage_state.create({}, 5 * 10**6)
    assert Path(folder).is_relative_to("/dev/shm" if in_memory else tmp_path)
    shutil.rmtree(folder)


def test_no_room_anywhere_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    monkeypatch.setattr(storage_state.tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(OSError, match=r"needs .* MB in .*; free some room there"):
        storage_state.create({}, 10**6)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_processes_share_counters_and_cache(tmp_path: Path, start_method: str) -> None:
    (tmp_path / "data").write_bytes(bytes(1_000_000))
    fs = slow_storage(tmp_path, "laptop SSD")
    context: Any = multiprocessing.get_context(start_method)
    readers = [context.Process(target=fs.cat_file, args=("data",)) for _ in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(60)
        assert reader.exitcode == 0
    seen = fs.counters()
    assert (seen.opens, seen.bytes_used, seen.bytes_read) == (2, 2_000_000, 1_000_000)
    assert seen.hit_share == 0.5
