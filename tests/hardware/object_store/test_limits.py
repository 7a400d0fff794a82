"""Timing of an object store, with a clock that only the test advances."""

from dataclasses import replace

import pytest

from course_utils.hardware.object_store.server import Limits
from course_utils.hardware.storage import storage_preset

MB = 1_000_000
PRESET = replace(
    storage_preset("S3"), open_ms=50, opens_per_s=100, request_ms=100, mb_s=40, stream_mb_s=10
)


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("readers", "seconds"), [(1, 2 / 10), (4, 2 / 10), (16, 32 / 40)])
def test_readers_share_the_link_fairly_up_to_one_stream_each(readers, seconds):
    limits = Limits(PRESET, clock=(clock := Clock()))
    arrivals = [limits.answer() for _ in range(readers)]
    due = [(arrival(0), reader, 20) for reader, arrival in enumerate(arrivals)]
    ends = [0.0] * readers
    while due:  # the earliest reader continues, in pieces of 0.1 MB
        clock.now, reader, left = min(due)
        due.remove((clock.now, reader, left))
        ends[reader] = clock.now
        if left:
            due.append((arrivals[reader](MB // 10), reader, left - 1))
    assert max(ends) == pytest.approx(0.1 + seconds, 0.02)
    assert min(ends) > 0.95 * max(ends)


def test_late_wake_up_is_compensated_but_a_pause_is_not():
    arrival = Limits(PRESET, clock=(clock := Clock())).answer()
    for _ in range(100):
        clock.now = arrival(MB // 100) + 0.001
    assert clock.now == pytest.approx(0.1 + 1 / 10, abs=0.002)
    clock.now = 60
    assert arrival(MB) > 60 + 0.05


def test_look_ups_queue_and_have_no_delay_without_limits():
    limits = Limits(PRESET, clock=Clock())
    assert [limits.look_up() for _ in range(3)] == pytest.approx([0.05, 0.06, 0.07])
    limits = Limits(None, clock=Clock())
    assert limits.look_up() == limits.answer()(10**12) == 0
