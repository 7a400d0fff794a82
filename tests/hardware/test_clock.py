import threading
import time
from dataclasses import replace

import pytest

from course_utils.hardware.clock import RealClock, VirtualClock
from course_utils.hardware.storage import slow_storage, storage_preset

MS = MB = 1_000_000
FIGURES = replace(
    storage_preset("S3"), open_ms=5_000, request_ms=20_000, mb_s=1, stream_mb_s=1, cache_mb=0
)


@pytest.fixture
def fs(tmp_path):
    (tmp_path / "two.bin").write_bytes(bytes(2 * MB))
    return slow_storage(tmp_path, FIGURES)


def test_a_virtual_clock_is_put_forward_only_by_waiting_and_is_one_for_all_threads():
    clock = VirtualClock()
    threads = [threading.Thread(target=clock.sleep_until, args=(ms * MS,)) for ms in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock() == clock.waited == 7 * MS
    clock.sleep_until(3 * MS)  # that is over
    assert clock() == 7 * MS


def test_real_time_is_waited_for():
    clock = RealClock()
    end = clock() + 2 * MS
    clock.sleep_until(end)
    assert clock() >= end
    clock.sleep_until(0)


def test_emulated_time_is_that_of_the_calendar_and_nobody_waits_for_it(fs):
    before = time.monotonic()
    for _ in range(2):  # a second clock does not wait for what the first has done
        clock = VirtualClock(fs, computing=lambda: 7)
        start = clock()
        with fs.open("two.bin") as file:
            assert clock() == start + 5_000 * MS
            file.read(MB)
            file.read(MB)
        assert clock.waited == clock() - start == (5_000 + 2 * (20_000 + 1_000)) * MS
    assert time.monotonic() - before < 40  # of 94


def test_computing_between_two_reads_passes_time_too(fs):
    computed = 0
    clock = VirtualClock(fs, computing=lambda: computed)
    start = clock()
    with fs.open("two.bin") as file:
        file.read(MB)
        computed += 300 * MS
        file.read(MB)
    assert clock() - start == clock.waited + 300 * MS == 47_300 * MS


def test_over_a_storage_what_this_process_computes_is_counted(fs):
    clock = VirtualClock(fs)
    start = clock()
    sum(range(200_000))
    assert clock() > start
    assert clock.waited == 0
