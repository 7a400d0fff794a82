import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.hardware.clock import RealClock, VirtualClock
from course_utils.hardware.storage import StoragePreset, slow_storage, storage_preset

MS = MB = 1_000_000
FIGURES = replace(
    storage_preset("S3"), open_ms=5_000, request_ms=20_000, mb_s=1, stream_mb_s=1, cache_mb=0
)


def test_a_virtual_clock_is_put_forward_only_by_waiting_and_is_one_for_all_threads() -> None:
    clock = VirtualClock()
    threads = [threading.Thread(target=clock.sleep_until, args=(ms * MS,)) for ms in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock() == clock.waited == 7 * MS
    clock.sleep_until(3 * MS)  # that is over
    assert clock() == 7 * MS


def test_real_time_is_waited_for() -> None:
    clock = RealClock()
    end = clock() + 2 * MS
    clock.sleep_until(end)
    assert clock() >= end
    clock.sleep_until(0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "two.bin").write_bytes(bytes(2 * MB))
    return tmp_path


def test_emulated_time_is_that_of_the_calendar_and_nobody_waits_for_it(root: Path) -> None:
    fs = slow_storage(root, FIGURES)
    clock = VirtualClock(fs, computing=lambda: 7)
    start, before = clock(), time.monotonic()
    with fs.open("two.bin") as file:
        assert clock() == start + 5_000 * MS
        file.read(MB)
        file.read(MB)

    assert clock.waited == clock() - start == (5_000 + 2 * (20_000 + 1_000)) * MS
    assert time.monotonic() - before < 40  # of 47


def test_computing_between_two_reads_passes_time_too(root: Path) -> None:
    figures: StoragePreset = replace(FIGURES, open_ms=0, request_ms=0)
    computed = 0
    fs = slow_storage(root, figures)
    clock = VirtualClock(fs, computing=lambda: computed)
    start = clock()
    with fs.open("two.bin") as file:
        file.read(MB)
        computed += 300 * MS
        file.read(MB)

    assert clock() - start == 2_300 * MS
    assert clock.waited == 2_000 * MS


def test_over_a_storage_what_this_process_computes_is_counted(root: Path) -> None:
    clock = VirtualClock(slow_storage(root, FIGURES))
    start = clock()
    sum(range(200_000))

    assert clock() > start
    assert clock.waited == 0


def test_a_second_clock_does_not_wait_for_what_the_first_has_done(root: Path) -> None:
    fs = slow_storage(root, FIGURES)
    for _ in range(2):
        clock = VirtualClock(fs, computing=lambda: 0)
        with fs.open("two.bin") as file:
            file.read(MB)
        assert clock.waited == (5_000 + 20_000 + 1_000) * MS
