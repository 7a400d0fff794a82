import pytest

from course_utils.words import axis, duration, percent, plural
from tests.measure.handmade import MS


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.001, "< 1 %"), (0.376, "38 %"), (0.999, "> 99 %"), (1, "100 %")],
)
def test_only_nothing_is_0_percent_and_only_all_is_100(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0 s"), (42_000, "42 µs"), (7.5 * MS, "7.5 ms"), (38 * MS, "38 ms"), (2.41e9, "2.41 s")],
)
def test_durations_use_the_unit_that_reads_best(ns, text):
    assert duration(ns) == text


def test_counts_have_the_right_ending():
    assert [plural(n, "gap") for n in (0, 1, 2, 1234)] == [
        "0 gaps",
        "1 gap",
        "2 gaps",
        "1,234 gaps",
    ]


def test_an_axis_has_round_times_in_one_unit():
    assert list(axis(2_210 * MS, 8).values()) == ["0", "0.5 s", "1.0 s", "1.5 s", "2.0 s"]
    assert list(axis(90 * MS, 5).values()) == ["0", "20 ms", "40 ms", "60 ms", "80 ms"]
