from course_utils.paths import recording
from keepfed.measure.exchange import load_profile


def test_recorded_profile_has_waiting_and_computing():
    trace = load_profile(recording("profile_cpu.json.gz"))
    assert trace.lanes == ["main"]
    for stage in ("wait", "compute"):
        assert {s.batch for s in trace.spans if s.stage == stage} >= {0, 1, 2, 3}
