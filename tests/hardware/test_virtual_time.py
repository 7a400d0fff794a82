import time
from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.hardware.storage import StoragePreset, VirtualClock, slow_storage, storage_preset

MS = 1_000_000
MB = 1_000_000
FIGURES = replace(
    storage_preset("S3"), open_ms=5_000, request_ms=20_000, mb_s=1, stream_mb_s=1, cache_mb=0
)


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


def test_what_this_process_computes_is_counted(root: Path) -> None:
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
