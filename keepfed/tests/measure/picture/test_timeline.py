import base64
import json
import re

import pytest

from keepfed.measure.picture import Control, Picture, Timeline, TimelineGrid, key, states
from keepfed.measure.picture.timeline import module_source
from tests.measure.handmade import naive


@pytest.fixture
def grid():
    controls = [Control("run", "Run", ["naive", "workers"]), Control("load", "Load", [20, 80])]
    pictures = {
        key(controls, state): Picture([naive(load_ms=state["load"])], [state["run"]])
        for state in states(controls)
    }
    return TimelineGrid(controls, pictures)


def test_state_is_completed_and_checked(grid):
    with pytest.raises(ValueError, match=r"load=30 is not available\. Choose from: 20, 80"):
        grid.state = {"load": 30}
    with pytest.raises(ValueError, match="run, load"):
        grid.state = {"lod": 20}
    before = grid.payload
    grid.put(grid.state, Picture([naive(), naive(step_ms=20)], ["predicted", "measured"]))
    assert grid.picture.names == ("predicted", "measured")
    assert grid.extra
    assert grid.payload == before
    assert "predicted" in grid.to_fragment()
    grid.state = {"load": 80}
    assert grid.state == {"run": "naive", "load": 80}
    assert grid.picture.sentence.startswith("Naive: the GPU computes 11 %")


def test_page_is_complete_and_offline(grid):
    page = grid.to_html()
    assert len(page) < 200_000
    addresses = set(re.findall(r"(?:https?:)?//[\w.]+", page)) - {"http://www.w3.org"}
    assert not {address for address in addresses if "." in address}
    assert not re.search(r"^\s*import\b", module_source(), re.MULTILINE)
    stored = json.loads(re.search(r'course-timeline">(.*?)</script>', page)[1])
    assert stored["state"] == grid.state
    assert base64.b64decode(stored["payload"]) == grid.payload
    hostile = Timeline({"</script><b>": naive()}).to_fragment()
    assert hostile.count("</script>") == 2


def test_a_picture_of_one_trace_opens_on_its_first_steps():
    trace = naive(load_ms=80, step_ms=20)
    second = [span for span in trace.spans if span.stage == "compute"][1]
    assert Timeline(trace, steps=2).picture.until_ms == (second.end_ns - trace.begins_ns) / 1e6
    assert Timeline(trace).picture.until_ms is None
