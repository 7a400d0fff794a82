import pytest

from course_utils.measure.spans import Span, hidden_share


def copy(start, end):
    return Span("copy", "transfer", start, end, 0)


def step(start, end):
    return Span("gpu", "compute", start, end, 0)


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([copy(0, 10), step(10, 30)], 0.0),
        ([copy(0, 10), step(5, 30)], 0.5),
        ([copy(10, 20), step(0, 30)], 1.0),
        ([copy(0, 10), copy(20, 30), step(8, 22)], 0.2),
        ([copy(0, 10), step(0, 5), step(4, 8)], 0.8),
    ],
)
def test_the_share_is_the_time_in_which_both_are_at_work(spans, share):
    assert hidden_share(spans) == pytest.approx(share)


def test_nothing_to_hide_is_hidden():
    assert hidden_share([step(0, 10)]) == 1.0


def test_other_lanes_count_for_nothing():
    assert hidden_share([copy(0, 10), Span("main", "wait", 0, 10, 0)]) == 0.0
