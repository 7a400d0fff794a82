import json

import pytest

from course_utils.paths import recording
from keepfed.measure.exchange import load_chrome, load_profile


def test_recorded_traces_of_dftracer_have_all_lanes_and_the_au_of_dlio() -> None:
    trace = load_chrome(recording("dftracer_loader.trace.json.gz"))
    assert set(trace.lanes) == {"main", "worker 0", "worker 1"}
    assert sum(span.stage == "compute" for span in trace.spans) == 12
    trace = load_chrome(recording("dlio_unet3d.trace.json.gz"))
    says = json.loads(recording("dlio_unet3d.json").read_text())["says"]
    au = next(line for line in says if "[AU]" in line).split(": ")[1].split()[0]
    assert 100 * trace.summary().au == pytest.approx(float(au), abs=3)
    assert "DLIO sleeps instead of computing" in trace.note


def test_recorded_profile_has_waiting_and_computing() -> None:
    trace = load_profile(recording("profile_cpu.json.gz"))
    assert trace.lanes == ["main"]
    for stage in ("wait", "compute"):
        assert {span.batch for span in trace.spans if span.stage == stage} >= {0, 1, 2, 3}
