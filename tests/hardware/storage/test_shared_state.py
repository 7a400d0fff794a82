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
from course_utils.hardware.storage.calendar import Device, attach, make_state

PRESET = storage_preset("laptop SSD")
forks = pytest.mark.skipif(sys.platform == "win32", reason="this system does not fork")


@pytest.fixture
def device() -> Device:
    return attach(make_state(".", PRESET))


def fork(action: Callable[..., Any], *arguments: Any) -> Any:
    """Start the action in a forked process."""
    child = multiprocessing.get_context("fork").Process(target=action, args=arguments)
    child.start()
    return child


def ending(child: Any) -> int | None:
    """Return how a process ended; None if it hung."""
    child.join(20)
    code: int | None = child.exitcode
    child.kill()
    child.join()
    return code


def interrupted() -> None:
    raise KeyboardInterrupt


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("end", [interrupted, pytest.param(killed, marks=forks)])
def test_whoever_ends_inside_the_lock_leaves_it_free_and_the_cache_empty(
    device: Device, end: Callable[[], None]
) -> None:
    def end_inside() -> None:
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
def test_a_stopped_holder_is_named_and_waiting_can_be_interrupted_and_ends_with_its_death(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_inside() -> None:
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


@forks
def test_a_forked_child_does_not_own_its_parents_lock(device: Device) -> None:
    entered = multiprocessing.get_context("fork").Event()

    def enter() -> None:
        with device.state.locked():
            entered.set()

    with device.state.locked():
        child = fork(enter)
        assert not entered.wait(0.3)
    assert ending(child) == 0
    assert entered.is_set()


def test_threads_take_turns(device: Device) -> None:
    entered = threading.Event()

    def enter() -> None:
        with device.state.locked():
            entered.set()

    thread = threading.Thread(target=enter)
    with device.state.locked():
        thread.start()
        assert not entered.wait(0.3)
    assert entered.wait(20)
    thread.join()


@forks
def test_two_processes_may_use_two_storages_crosswise_in_threads(device: Device) -> None:
    """The system would see a deadlock: each process holds what the other waits for."""
    other, failed = attach(make_state(".", PRESET)), []
    both_inside = multiprocessing.get_context("fork").Barrier(2, timeout=20)

    def ask(wanted: Device) -> None:
        try:
            wanted.counters()
        except OSError as error:
            failed.append(error)

    def hold(mine: Device, wanted: Device) -> None:
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


def run_python(program: str) -> str:
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


@pytest.mark.parametrize("reader", ["", "view = attach(folder).state.memory[:9]"])
def test_the_state_goes_with_the_process_that_made_it_even_if_it_is_looked_at(reader: str) -> None:
    folder = run_python(f"print(folder); {reader}")
    assert folder
    assert not Path(folder).exists()


@forks
def test_the_end_of_a_child_leaves_the_state_in_place() -> None:
    program = "if os.fork() == 0: sys.exit()\nos.wait(); print(os.path.exists(folder))"
    assert run_python(program) == "True"


@forks
def test_what_a_killed_process_left_goes_when_the_next_storage_is_made() -> None:
    left = run_python("print(folder, flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    os.utime(left, (0, 0))
    mine = make_state(".", PRESET)
    os.utime(mine, (0, 0))
    other = run_python("print(folder)")
    assert not Path(left).exists()
    assert Path(mine).exists()
    assert other != mine


def test_a_state_that_has_gone_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make a new one with slow_storage"):
        attach(str(tmp_path / "none"))


def no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *full: Path | str) -> None:
    """Let nothing be written in the places that are full."""
    write = Path.write_bytes

    def write_bytes(path: Path, data: bytes) -> int:
        if any(path.is_relative_to(place) for place in full):
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    monkeypatch.setattr(storage_state.tempfile, "gettempdir", lambda: str(tmp_path))


def test_no_room_in_memory_takes_the_disk_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room(monkeypatch, tmp_path, "/dev/shm")
    assert Path(storage_state.create({}, 100)).parent == tmp_path


def test_no_room_anywhere_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room(monkeypatch, tmp_path, "/dev/shm", tmp_path)
    with pytest.raises(OSError, match=r"needs .* MB in .*; free some room there"):
        storage_state.create({}, 10**6)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm here")
@pytest.mark.parametrize(("free_mb", "in_memory"), [(64, False), (640, True)])
def test_a_small_memory_is_left_to_the_batches_of_workers(
    free_mb: int, in_memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage:
        free = free_mb * 10**6

    monkeypatch.setattr(storage_state.shutil, "disk_usage", lambda home: Usage)
    no_room(monkeypatch, tmp_path)
    folder = storage_state.create({}, 5 * 10**6)
    assert Path(folder).is_relative_to("/dev/shm" if in_memory else tmp_path)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_processes_share_counters_and_cache(tmp_path: Path, start_method: str) -> None:
    (tmp_path / "data").write_bytes(bytes(1_000_000))
    fs = slow_storage(tmp_path, "laptop SSD")
    context: Any = multiprocessing.get_context(start_method)
    readers = [context.Process(target=fs.cat_file, args=("data",)) for _ in range(2)]
    for reader in readers:
        reader.start()
    assert [ending(reader) for reader in readers] == [0, 0]
    seen = fs.counters()
    assert (seen.opens, seen.bytes_used, seen.bytes_read) == (2, 2_000_000, 1_000_000)
    assert seen.hit_share == 0.5
