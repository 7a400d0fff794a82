"""The calendar of an object store, with a clock that stands still unless it is moved."""

from dataclasses import replace

import pytest

from course_utils.hardware.object_store.server import Limits
from course_utils.hardware.storage import storage_preset

MB = 1_000_000
PRESET = replace(
    storage_preset("S3"), open_ms=50, opens_per_s=100, request_ms=100, mb_s=40, stream_mb_s=10
)


class FakeClock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return FakeClock()


def arrivals(clock, readers, *, pieces=20):
    """Return when each reader of `pieces` times 0.1 MB has them all; whoever is first goes on."""
    limits = Limits(PRESET, clock=clock)
    answers = [limits.answer() for _ in range(readers)]
    due = [(answer.first_byte, reader, pieces) for reader, answer in enumerate(answers)]
    ends = [0.0] * readers
    while due:
        clock.now, reader, left = min(due)
        due.remove((clock.now, reader, left))
        if left:
            due.append((answers[reader].arrival(MB // 10), reader, left - 1))
        else:
            ends[reader] = clock.now
    return ends


@pytest.mark.parametrize(("readers", "seconds"), [(1, 2 / 10), (4, 2 / 10), (8, 16 / 40)])
def test_a_reader_has_the_rate_of_one_stream_and_all_together_that_of_the_line(
    clock, readers, seconds
):
    assert max(arrivals(clock, readers)) == pytest.approx(0.1 + seconds, 0.02)


def test_readers_share_the_line_evenly(clock):
    ends = arrivals(clock, 16)
    assert min(ends) > 0.95 * max(ends)


def test_a_late_wake_up_is_made_good_by_the_next_piece_and_a_pause_is_not(clock):
    answer = Limits(PRESET, clock=clock).answer()
    for _ in range(100):
        clock.now = answer.arrival(MB // 100) + 0.001
    assert clock.now == pytest.approx(0.1 + 1 / 10, abs=0.002)
    clock.now = 60
    assert answer.arrival(MB) > 60 + 0.05


def test_an_idle_line_saves_nothing_up(clock):
    limits = Limits(PRESET, clock=clock)
    for clock.now in (0, 60):
        assert limits.pass_line(MB) == clock.now + 1 / 40


def test_look_ups_queue_at_the_metadata_server(clock):
    limits = Limits(PRESET, clock=clock)
    assert [limits.look_up() for _ in range(3)] == pytest.approx([0.05, 0.06, 0.07])


def test_without_limits_everything_is_there_at_once(clock):
    limits = Limits(None, clock=clock)
    answer = limits.answer()
    assert limits.look_up() == answer.first_byte == answer.arrival(10**12) == 0
