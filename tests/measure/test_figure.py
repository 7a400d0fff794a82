import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from course_utils.measure.figure import draw
from course_utils.measure.palette import IDLE, LOOKS
from course_utils.measure.simulate import Pipeline, simulate
from tests.measure.handmade import naive, span, trace_of


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def looks(ax):
    """Return the colours and hatches on `ax`."""
    return {
        (to_hex(bars.get_facecolor()[0]), bars.get_hatch())
        for bars in ax.collections
        if len(bars.get_facecolor())
    }


def test_stages_are_drawn_in_their_colour_and_hatch():
    (ax,) = draw(naive()).axes
    for look in (LOOKS["read"], LOOKS["compute"], IDLE):
        assert (look.colour, look.hatch) in {(colour, hatch or "") for colour, hatch in looks(ax)}


def test_the_note_stands_on_the_picture():
    (ax,) = draw(naive()).axes
    assert ax.get_title("right") == "made by hand"
    assert ax.get_title("left") == "naive: GPU busy 25 %"


def test_every_lane_is_named_with_its_share():
    (ax,) = draw(naive()).axes
    assert [label.get_text().split() for label in ax.get_yticklabels()] == [
        ["main", "75", "%"],
        ["gpu", "25", "%"],
    ]


def test_two_traces_share_the_time_axis():
    figure = draw({"predicted": naive(steps=2), "measured": naive(steps=4)})
    upper, lower = figure.axes
    assert upper.get_xlim() == lower.get_xlim() == pytest.approx((0, 0.16))


def test_a_trace_can_be_drawn_into_given_axes():
    figure, ax = plt.subplots()
    assert draw(naive(), ax) is figure


def test_several_traces_do_not_fit_into_given_axes():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match="call draw without ax"):
        draw({"one": naive(), "other": naive()}, ax)


def test_a_figure_is_shown_once_in_a_notebook():
    draw(naive())
    assert plt.get_fignums() == []


def test_a_long_run_is_drawn_as_shares():
    trace = simulate(Pipeline(read_ms=7, step_ms=4, num_workers=2, steps=600, jitter=0.5))
    (ax,) = draw(trace).axes
    assert len(ax.collections) < 100
    assert not any(len(bars.get_paths()) > 900 for bars in ax.collections)


def test_a_trace_without_steps_can_be_drawn():
    draw(trace_of(span("main", "read", 0, 5)))
