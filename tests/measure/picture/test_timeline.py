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


def stored(widget):
    return json.loads(re.search(r'course-timeline">(.*?)</script>', widget.to_fragment())[1])


def test_a_recorded_trace_draws_itself_without_controls():
    with record(label="mine") as trace, stage("compute", lane="gpu"):
        pass
    assert trace.timeline().controls == []
    assert "Mine: the GPU computes 100 %" in trace.timeline().text()


@pytest.mark.parametrize(
    ("names", "compare", "options", "first"),
    [
        ("a", False, ["a"], ["a"]),
        ("ab", False, ["a", "b", "a and b"], ["a"]),
        ("abc", True, ["a", "b", "c", "all together"], ["a", "b", "c"]),
    ],
)
def test_several_traces_can_be_switched_and_compared(names, compare, options, first):
    widget = Timeline({name: naive() for name in names}, compare=compare)
    (control,) = widget.controls
    assert control.options == options
    assert list(widget.picture.names) == first
    widget.state = {"show": options[-1]}
    assert list(widget.picture.names) == list(names)


def test_no_trace_and_a_state_without_a_picture_are_refused():
    with pytest.raises(ValueError, match="give at least one trace"):
        Timeline({})
    with pytest.raises(ValueError, match="load=80 has no picture"):
        TimelineGrid([CONTROLS[1]], {"load=20": Picture([naive()])})


def test_a_grid_starts_with_the_first_options_and_completes_a_state_by_what_is_shown():
    assert grid(state={"load": 80}).state == {"strategy": "naive", "load": 80}
    widget = grid()
    assert widget.state == {"strategy": "naive", "load": 20}
    widget.state = {"load": 80}
    assert widget.state == {"strategy": "naive", "load": 80}
    assert widget.picture.sentence.startswith("Naive: the GPU computes 11 %")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"load": 30}, "load=30 is not offered; choose from: 20, 80"),
        ({"lod": 20}, "strategy, load"),
    ],
)
def test_what_is_not_offered_is_refused(state, message):
    widget = grid()
    with pytest.raises(ValueError, match=message):
        widget.state = state
    assert widget.state == {"strategy": "naive", "load": 20}


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
    page = grid().to_html("My run")
    assert "<title>My run</title>" in page
    assert len(page) < 200_000
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+", page)) - {"http://www.w3.org"}
    assert not {address for address in addresses if "." in address}


@pytest.mark.parametrize("widget", [grid(state={"load": 80}), Timeline(naive())])
def test_a_fragment_holds_all_that_the_widget_has_and_a_fallback(widget):
    assert stored(widget)["state"] == widget.state
    assert base64.b64decode(stored(widget)["payload"]) == widget.payload
    assert "<svg" in widget.to_fragment()
    assert "mountAll();" in widget.to_fragment()
    assert "mountAll();" not in widget.to_fragment(module=False)


def test_a_name_cannot_end_the_script_it_stands_in():
    assert Timeline({"</script><b>": naive()}).to_fragment().count("</script>") == 2


def test_a_notebook_gets_text_and_html_only_when_asked(monkeypatch):
    monkeypatch.delenv("COURSE_STATIC", raising=False)
    data, _ = grid()._repr_mimebundle_()
    assert data["text/plain"].startswith("Naive: the GPU computes 33 %")
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "text/html" not in data
    monkeypatch.setenv("COURSE_STATIC", "1")
    data, _ = grid()._repr_mimebundle_()
    assert data["text/html"] == grid().to_fragment()


def test_the_module_has_no_imports_and_one_default_export():
    assert not re.search(r"^\s*import\b", module_source(), re.MULTILINE)
    assert len(re.findall(r"^export default", module_source(), re.MULTILINE)) == 1
