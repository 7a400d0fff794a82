import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from course_utils.paths import recording
from course_utils.stories.dftracer import load_dftracer


def event(pid: int, name: str, cat: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """Return an event in the format of DFTracer 2.2. Times are microseconds."""
    times = {"ts": start, "dur": end - start, "ph": 1}
    host = {"args": {"hhash": "68"}}
    return {"name": name, "cat": cat, "pid": pid, "tid": pid, **times, **host, **more}


def write(file: Path, *events: dict[str, Any]) -> Path:
    file.write_text("".join(f"{json.dumps(one)}\n" for one in events))
    return file


def test_recorded_loader_has_both_workers_and_every_batch() -> None:
    trace = load_dftracer(recording("dftracer_loader.pfw.gz"))
    assert trace.served == sum(span.stage == "compute" for span in trace.spans) == 12
    in_workers = {(s.lane, s.stage) for s in trace.spans if s.lane.startswith("worker")}
    assert in_workers == {(f"worker {n}", s) for n in (0, 1) for s in ("read", "decode")}
    assert min(span.start_ns for span in trace.spans) == 0
    assert "recorded by DFTracer" in trace.note


def test_au_of_the_recorded_dlio_run_matches_dlio() -> None:
    trace = load_dftracer(recording("dlio_unet3d.pfw.gz"))
    says = json.loads(recording("dlio_unet3d.json").read_text())["says"]
    au = next(line for line in says if "[AU]" in line).split(": ")[1].split()[0]
    assert 100 * trace.summary().au == pytest.approx(float(au), abs=3)
    assert "DLIO sleeps instead of computing" in trace.note


def test_reading_inside_a_fetch_counts_as_reading(tmp_path: Path) -> None:
    calls = [("open64", 110, 120), ("read", 120, 150), ("close", 150, 160)]
    file = write(
        tmp_path / "worker.pfw",
        event(2, "Events.__getitem__", "data_loader", 100, 200),
        *(event(2, name, "POSIX", start, end) for name, start, end in calls),
    )
    spans = [(s.stage, s.start_ns // 1000, s.end_ns // 1000) for s in load_dftracer(file).spans]
    assert spans == [("decode", 0, 10), ("read", 10, 20), ("read", 20, 50), ("decode", 50, 100)]


def test_files_of_a_folder_become_one_trace(tmp_path: Path) -> None:
    write(tmp_path / "a.pfw", event(7, "fetch", "data_loader", 12, 20))
    write(tmp_path / "b.pfw", event(8, "fetch", "data_loader", 11, 20))
    loop = [("loop.iter", 10, 20), ("TorchFramework.compute", 20, 30), ("loop.yield", 20, 30)]
    loop += [("loop.iter", 30, 40), ("TorchFramework.compute", 40, 50)]
    write(tmp_path / "c.pfw", *(event(5, name, "dlio", start, end) for name, start, end in loop))
    trace = load_dftracer(tmp_path)
    assert trace.lanes == ["worker 0", "worker 1", "main"]
    assert [s.start_ns for s in trace.spans if s.lane == "worker 0"] == [1_000]
    main = [(s.stage, s.batch) for s in trace.spans if s.lane == "main"]
    assert main == [("wait", 0), ("compute", 0), ("wait", 1), ("compute", 1)]


def test_threads_get_lanes_and_a_file_can_name_its_time_unit(tmp_path: Path) -> None:
    unit = {"name": "CM", "cat": "dftracer", "pid": 5, "tid": 5, "ph": 4}
    unit["args"] = {"name": "time_metric", "value": "NS"}
    reading = event(5, "read", "POSIX", 0, 10, tid=9)
    file = write(tmp_path / "a.pfw", unit, event(5, "train", "compute", 0, 10), reading)
    file.write_text("[\n" + file.read_text().replace("\n", ",\n") + "]\n")  # an older format
    trace = load_dftracer(file)
    assert set(trace.lanes) == {"main", "main, thread 9"}
    assert {span.duration_ns for span in trace.spans} == {10}


def test_truncated_file_of_a_killed_program_is_read(tmp_path: Path) -> None:
    lines = [json.dumps(event(5, "read", "POSIX", n, n + 1)) for n in range(2_000)]
    whole = gzip.compress("\n".join(lines).encode())
    (tmp_path / "cut.pfw.gz").write_bytes(whole[: len(whole) // 2])
    assert 0 < len(load_dftracer(tmp_path / "cut.pfw.gz").spans) < 2_000


def test_error_names_a_file_without_events(tmp_path: Path) -> None:
    for content in ("no JSON", '{"name": "a"}', "[1, 2]"):
        (tmp_path / "empty.pfw").write_text(content)
        with pytest.raises(
            ValueError, match=r"empty\.pfw contains no DFTracer events.*DFTRACER_ENABLE"
        ):
            load_dftracer(tmp_path / "empty.pfw")
