from dataclasses import replace

from course_utils.hardware.gpu.recordings import listing, recordings
from course_utils.paths import recording
from keepfed.measure.exchange import load_profile, save_chrome
from keepfed.measure.simulate import Pipeline, simulate

FACTS = {"gpu": "emulated H200", "date": "2026-11-21", "command": "python tests/gpu/run.py"}


def test_recordings_name_their_machine_and_compare_two_devices(tmp_path):
    assert "make gpu-check" in listing(recordings(tmp_path))
    for name in ("pinned", "naive"):  # as in tests/gpu/run.py
        for kind, read_ms in (("measured", 10), ("emulated", 30)):
            recorded = simulate(replace(Pipeline(step_ms=10), read_ms=read_ms))
            file = tmp_path / f"h200-{name}-{kind}.json"
            save_chrome(recorded, file, **FACTS, loop={"name": name})
    found = recordings(tmp_path)
    first, second = listing(found).splitlines()
    assert second.startswith("pinned: ")
    assert first == (
        "naive: GPU busy 50 % measured, 25 % emulated, 25.0 points apart "
        "(emulated H200, 2026-11-21, python tests/gpu/run.py)"
    )
    assert found[0].timeline().picture.names == ("measured, emulated H200", "emulated")


def test_recorded_profile_has_waiting_and_computing():
    trace = load_profile(recording("profile_cpu.json.gz"))
    assert {*trace.lanes} == {"main", "cpu"}
    for stage in ("wait", "compute"):
        assert {s.batch for s in trace.spans if s.stage == stage} >= {0, 1, 2, 3}
