import base64
import json
import re

import pytest

from course_utils.measure.picture import Control, Picture, Timeline, TimelineGrid, key, states
from course_utils.measure.picture.timeline import module_source
from course_utils.measure.spans import stage
from course_utils.measure.trace import record
from tests.measure.handmade import naive

CONTROLS = [
    Control("strategy", "Strategy", ["naive", "workers"]),
    Control("load", "Load", [20, 80]),
]


def grid(**options):
    pictures = {
        key(CONTROLS, state): Picture([naive(load_ms=state["load"])], [state["strategy"]])
        for state in states(CONTROLS)
    }
    return TimelineGrid(CONTROLS, pictures, **options)


def test_a_recorded_trace_draws_itself_without_controls():
    with record(label="mine") as trace, stage("compute", lane="gpu"):
        pass
    widget = trace.timeline()
    assert widget.controls == []
    data, _ = widget._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].startswith("Mine: the GPU computes 100 %")


@pytest.mark.parametrize(
    ("names", "options"),
    [("a", ["a"]), ("ab", ["a", "b", "a and b"]), ("abc", ["a", "b", "c", "all together"])],
)
def test_several_traces_can_be_switched_and_compared(names, options):
    widget = Timeline({name: naive() for name in names})
    (control,) = widget.controls
    assert control.options == options
    assert widget.picture.names == ("a",)
    widget.state = {"show": options[-1]}
    assert widget.picture.names == tuple(names)


def test_a_state_is_completed_by_what_is_shown_and_refused_if_it_is_not_offered():
    assert grid(state={"load": 80}).state == {"strategy": "naive", "load": 80}
    widget = grid()
    with pytest.raises(ValueError, match="load=30 is not offered; choose from: 20, 80"):
        widget.state = {"load": 30}
    with pytest.raises(ValueError, match="strategy, load"):
        widget.state = {"lod": 20}
    assert widget.state == {"strategy": "naive", "load": 20}
    widget.state = {"load": 80}
    assert widget.state == {"strategy": "naive", "load": 80}
    assert widget.picture.sentence.startswith("Naive: the GPU computes 11 %")


def test_a_picture_can_be_added_to_its_state():
    widget = grid()
    before = widget.payload
    widget.put(widget.state, Picture([naive(), naive(step_ms=20)], ["predicted", "measured"]))
    assert widget.picture.names == ("predicted", "measured")
    assert widget.extra
    assert widget.payload == before
    assert "predicted" in widget.to_fragment()
    widget.state = {"load": 80}
    assert widget.picture.names == ("naive",)


def test_a_page_is_one_small_file_that_names_no_other():
    page = grid().to_html()
    assert len(page) < 200_000
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+", page)) - {"http://www.w3.org"}
    assert not {address for address in addresses if "." in address}
    assert not re.search(r"^\s*import\b", module_source(), re.MULTILINE)
    assert len(re.findall(r"^export default", module_source(), re.MULTILINE)) == 1


@pytest.mark.parametrize("widget", [grid(state={"load": 80}), Timeline(naive())])
def test_a_fragment_holds_all_that_the_widget_has_and_a_fallback(widget):
    fragment = widget.to_fragment()
    stored = json.loads(re.search(r'course-timeline">(.*?)</script>', fragment)[1])
    assert stored["state"] == widget.state
    assert base64.b64decode(stored["payload"]) == widget.payload
    assert "<svg" in fragment
    assert "mountAll();" in fragment


def test_a_name_cannot_end_the_script_it_stands_in():
    assert Timeline({"</script><b>": naive()}).to_fragment().count("</script>") == 2
