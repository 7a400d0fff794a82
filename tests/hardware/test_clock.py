import threading
import time
from dataclasses import replace

import pytest

from course_utils.hardware import clock as module
from course_utils.hardware.clock import VirtualClock
from course_utils.hardware.storage import slow_storage, storage_preset

MS = MB = 1_000_000
TIMES = {"open_ms": 5_000, "request_ms": 20_000, "mb_s": 1, "stream_mb_s": 1}
FIGURES = replace(storage_preset("S3"), **TIMES, cache_mb=0)


@pytest.fixture
def fs(tmp_path):
    (tmp_path / "two.bin").write_bytes(bytes(2 * MB))
    return slow_storage(tmp_path, FIGURES)


def test_only_waits_advance_a_virtual_clock_for_all_threads():
    clock = VirtualClock()
    threads = [threading.Thread(target=clock.sleep_until, args=(ms * MS,)) for ms in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock() == clock.waited == 7 * MS
    clock.sleep_until(3 * MS)  # a time in the past
    assert clock() == 7 * MS


def test_emulated_time_is_that_of_the_calendar_without_waiting(fs, monkeypatch):
    before = time.monotonic()
    monkeypatch.setattr(module, "_computing", lambda: 7)
    for _ in range(2):  # a second clock does not wait for work of the first
        clock = VirtualClock(fs)
        start = clock()
        with fs.open("two.bin") as file:
            assert clock() == start + 5_000 * MS
            file.read(MB)
            file.read(MB)
        assert clock.waited == clock() - start == (5_000 + 2 * (20_000 + 1_000)) * MS
    assert time.monotonic() - before < 40  # 94 without the virtual clock


def test_computing_between_two_reads_advances_the_clock(fs, monkeypatch):
    computed = 0
    monkeypatch.setattr(module, "_computing", lambda: computed)
    clock = VirtualClock(fs)
    start = clock()
    with fs.open("two.bin") as file:
        file.read(MB)
        computed += 300 * MS
        file.read(MB)
    assert clock() - start == clock.waited + 300 * MS == 47_300 * MS


def test_clock_over_a_storage_counts_cpu_time_of_this_process(fs):
    clock = VirtualClock(fs)
    start = clock()
    sum(range(200_000))
    assert clock() > start
    assert clock.waited == 0
