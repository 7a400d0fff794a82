"""Recordings are made as tests/gpu/run.py makes them, of a device that is emulated."""

import json
from dataclasses import replace

import pytest

from course_utils.measure.exchange import listing, recordings
from course_utils.measure.exchange.chrome import chrome_trace
from course_utils.measure.exchange.recordings import NONE
from course_utils.measure.simulate import Pipeline, simulate

FACTS = {"gpu": "emulated H200", "date": "2026-11-21", "command": "python tests/gpu/run.py"}
LOOP = Pipeline(read_ms=10, step_ms=10)


def save(folder, name, *, read_ms=(10, 10), facts=FACTS):
    for kind, ms in zip(("measured", "emulated"), read_ms, strict=True):
        recorded = chrome_trace(simulate(replace(LOOP, read_ms=ms)))
        recorded["otherData"] |= {**facts, "loop": {"name": name}}
        (folder / f"h200-{name}-{kind}.json").write_text(json.dumps(recorded))


def test_without_recordings_one_sentence_says_how_they_are_made(tmp_path):
    assert recordings(tmp_path) == []
    assert listing([]) == NONE
    assert "`make gpu-check`" in NONE


def test_those_that_come_with_the_course_can_be_read():
    assert listing(recordings())


def test_a_recording_knows_its_machine(tmp_path):
    save(tmp_path, "naive")
    (found,) = recordings(tmp_path)
    assert (found.loop, found.gpu, found.date, found.command) == ("naive", *FACTS.values())
    assert str(found).startswith("naive: GPU busy ")


def test_the_two_devices_are_compared_by_how_busy_they_were(tmp_path):
    save(tmp_path, "naive", read_ms=(10, 30))
    (found,) = recordings(tmp_path)
    compared = found.compare()
    assert compared.measured == pytest.approx(found.measured.summary().utilisation)
    assert compared.measured > compared.emulated
    assert compared.apart == pytest.approx(compared.measured - compared.emulated)
    assert str(compared).endswith(f"{100 * compared.apart:.1f} points apart")


def test_both_are_drawn_in_one_picture(tmp_path):
    save(tmp_path, "naive")
    picture = recordings(tmp_path)[0].timeline().picture
    assert picture.names == ("measured, emulated H200", "emulated")
    assert len(picture.traces) == 2


def test_they_are_sorted_and_one_without_its_twin_is_left_out(tmp_path):
    for name in ("pinned", "naive", "alone"):
        save(tmp_path, name)
    (tmp_path / "h200-alone-emulated.json").unlink()
    (tmp_path / "profile_cpu.json").write_text("{}")
    assert [found.loop for found in recordings(tmp_path)] == ["naive", "pinned"]


def test_a_file_that_does_not_say_its_gpu_is_named(tmp_path):
    save(tmp_path, "naive", facts={"date": "2026-11-21"})
    with pytest.raises(ValueError, match=r"naive-measured.json does not say its gpu; record it"):
        recordings(tmp_path)


def test_a_loop_that_is_no_table_is_named(tmp_path):
    save(tmp_path, "naive")
    path = tmp_path / "h200-naive-measured.json"
    recorded = json.loads(path.read_text())
    recorded["otherData"]["loop"] = "naive"
    path.write_text(json.dumps(recorded))
    with pytest.raises(ValueError, match=r"naive-measured.json does not name its loop"):
        recordings(tmp_path)


def test_a_file_without_facts_is_named(tmp_path):
    save(tmp_path, "naive")
    path = tmp_path / "h200-naive-measured.json"
    recorded = json.loads(path.read_text())
    del recorded["otherData"]
    path.write_text(json.dumps(recorded))
    with pytest.raises(ValueError, match=r"naive-measured.json does not say its gpu"):
        recordings(tmp_path)


def test_a_broken_file_is_named(tmp_path):
    save(tmp_path, "naive")
    (tmp_path / "h200-naive-measured.json").write_text("{")
    with pytest.raises(ValueError, match=r"naive-measured.json holds no Chrome trace"):
        recordings(tmp_path)
