from dataclasses import replace
from pathlib import Path

import pytest

from course_utils.hardware.storage import BLOCK, storage_preset
from course_utils.hardware.storage.calendar import Counters, attach, make_state

MS = MB = 1_000_000
# 10 ms per request, 2 in parallel, 1 MB/ms on the link, at most half of it for one request
TIMES = {"open_ms": 4, "opens_per_s": 500, "request_ms": 10, "requests_at_once": 2}
FIGURES = replace(storage_preset("S3"), **TIMES, mb_s=1_000, stream_mb_s=500)
CACHED = replace(FIGURES, cache_mb=100 * BLOCK / 1e6)


class FakeClock:
    """Clock that advances only while code sleeps."""

    now = oversleep = 0

    def __call__(self):
        return self.now

    def sleep_until(self, end_ns):
        self.now = end_ns + self.oversleep


@pytest.fixture
def clock():
    return FakeClock()


def device(clock, preset=FIGURES):
    made = attach(make_state(str(Path.cwd()), preset))
    made.clock = clock
    return made


def read(storage, start, stop, *, file=1, size=10**9, **options):
    return storage.reserve(file, start, stop, size=size, **options) / MS


def test_reads_share_the_link_and_wait_for_a_slot(clock):
    storage = device(clock)
    clock.now = 1_000 * MS  # unused bandwidth is lost
    assert read(storage, 0, MB) == 1_000 + 10 + 2
    fast = device(clock, replace(FIGURES, stream_mb_s=1_000))
    assert [read(fast, 0, 5 * MB), read(fast, 0, 5 * MB)] == [1_015, 1_020]
    slots = device(clock)
    assert [read(slots, 0, 1000 * i) // 10 - 100 for i in (1, 2, 3, 4)] == [1, 1, 2, 2]
    many = device(clock, replace(FIGURES, requests_at_once=64))
    ends = [read(many, 0, MB, file=file) - 1_000 for file in range(200)]
    assert max(ends) >= 200 / (FIGURES.mb_s / 1e3)


def test_sequential_read_skips_latency_with_readahead(clock):
    for readahead, ms in ((True, 2), (False, 12)):
        clock.now = 0
        storage = device(clock, replace(FIGURES, readahead=readahead))
        clock.now = round(read(storage, 0, MB)) * MS
        assert read(storage, MB, 2 * MB) == 12 + ms


def test_two_streams_make_one_disk_arm_seek_every_time(clock):
    disk = device(clock, replace(storage_preset("HDD"), request_ms=10, cache_mb=0))

    def milliseconds(files):
        start, at = clock.now, dict.fromkeys(files, 0)
        for file in files:
            clock.now = disk.reserve(file, at[file], at[file] + 1000, size=10**6)
            at[file] += 1000
        return (clock.now - start) / MS

    assert milliseconds([3] * 10 + [4] * 10) < 21
    assert milliseconds([5, 6] * 10) > 200


def test_opens_queue_at_the_metadata_server(clock):
    storage = device(clock)
    storage.look_up(opening=True)
    assert clock.now == 4 * MS
    clock.now = 0  # a second process sends a request at the same time
    storage.look_up(opening=False)
    assert clock.now == (2 + 4) * MS
    assert (storage.counters().opens, storage.counters().lookups) == (1, 1)


def test_oversleeping_is_compensated_by_the_next_request(clock):
    storage = device(clock)
    clock.oversleep = MS // 10
    for _ in range(100):
        storage.wait(storage.reserve(1, 0, 1, size=10))
    assert clock.now / MS == pytest.approx(100 * 10, rel=1e-3)
    clock.oversleep = 50 * MS  # a long pause of the system is not compensated
    storage.wait(storage.reserve(1, 0, 1, size=10))
    assert read(storage, 0, 1) == pytest.approx(1000 + 60 - 1 + 10, abs=0.2)


def test_page_cache_reads_complete_blocks_once(clock):
    storage = device(clock, CACHED)
    clock.now = round(read(storage, BLOCK + 5, BLOCK + 105) * MS)
    assert read(storage, BLOCK + 200, BLOCK + 300) == clock.now / MS  # immediately
    seen = storage.counters()
    assert (seen.requests, seen.bytes_read, seen.bytes_used) == (1, BLOCK, 200)
    assert (seen.hits, seen.misses, seen.hit_share) == (1, 1, 0.5)
    assert seen.read_amplification == BLOCK / 200
    read(storage, 0, 3_000, file=2, size=3_000)  # the last block ends with the file
    assert storage.counters().bytes_read == BLOCK + 3_000


def test_adjacent_missing_blocks_are_one_request(clock):
    storage = device(clock, CACHED)
    read(storage, 2 * BLOCK, 3 * BLOCK)
    storage.reset_counters()
    assert storage.counters() == Counters()
    read(storage, 0, 5 * BLOCK)
    seen = storage.counters()
    assert (seen.requests, seen.hits, seen.misses, seen.bytes_read) == (2, 1, 4, 4 * BLOCK)
    storage.drop_caches()
    read(storage, 0, 5 * BLOCK)
    assert storage.counters().misses == 9
    read(storage, 5 * BLOCK, 101 * BLOCK)  # evicts the first of 100
    read(storage, 0, BLOCK)
    assert storage.counters().misses == 9 + 96 + 1


def test_block_in_hand_is_not_a_hit_and_one_in_flight_is_awaited(clock):
    storage = device(clock, CACHED)
    arrives = read(storage, 0, 100)
    assert read(storage, 100, 200, in_hand=0) == arrives
    assert (storage.counters().hits, storage.counters().misses) == (0, 1)
