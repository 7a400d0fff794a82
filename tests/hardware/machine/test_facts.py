import re
import subprocess
from types import SimpleNamespace
from unittest.mock import Mock

from course_utils.hardware.machine import facts, pressure, probe
from tests.fixtures import run_python

GB = 10**9
LARGE = {
    "usable_cores": 8,
    "all_cores": 16,
    "memory": 64 * GB,
    "memory_free": 60 * GB,
    "shm_size": 32 * GB,
    "gpus": ["NVIDIA H200, 143771 MiB, driver 570.1"],
    "shutil.disk_usage": SimpleNamespace(total=32 * GB, free=20 * GB),
    "start_method": "fork",
}
ROWS = [
    ({}, "cores", "8 usable of 16"),
    ({"usable_cores": 1}, "cores", "small: workers help only while they wait"),
    ({"memory": 2 * GB}, "memory", "small: use data of size S"),
    ({"start_method": "spawn"}, "start method", "%%worker_module"),
    ({"gpus": []}, "GPU", "none an emulated"),
    ({"shutil.disk_usage": SimpleNamespace(free=GB / 2)}, "disk ", "small: "),
    ({"shutil.disk_usage": SimpleNamespace(free=GB / 2)}, "/dev/shm", "--shm-size=2g"),
]


def test_each_line_explains_its_fact(monkeypatch, tmp_path):
    monkeypatch.setattr(facts, "SHM", tmp_path)
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))  # a folder that does not exist yet
    for change, name, says in ROWS:
        for fact, value in (LARGE | change).items():
            monkeypatch.setattr(f"{facts.__name__}.{fact}", lambda *_, value=value: value)
        page = probe()
        row = re.search(rf"^{name}.*(\n .*)*", page, re.MULTILINE)
        assert row
        assert says in " ".join(row[0].split())
        assert f"(in {tmp_path})" in " ".join(page.split())
        assert max(len(line) for line in page.splitlines() if str(tmp_path) not in line) <= 106
        assert change or "small: " not in page
    silent = Mock(side_effect=PermissionError("not for you"))
    for fact in ("usable_cores", "memory", "shm_size", "gpus", "shutil.disk_usage"):
        monkeypatch.setattr(f"{facts.__name__}.{fact}", silent)
    monkeypatch.setattr(facts.metadata, "version", silent)
    page = probe()
    assert page.count("unknown") >= 3
    assert "not installed" in page


def test_probe_does_not_import_torch_or_set_the_start_method():
    program = """import multiprocessing, sys
from course_utils.hardware.machine import probe
probe()
print('torch' in sys.modules, multiprocessing.get_start_method(allow_none=True))"""
    assert run_python("-c", program).stdout.strip() == "False None"


def test_gpus_and_pressure_are_read_from_the_system(tmp_path, monkeypatch):
    told = "NVIDIA H200, 143771 MiB, 570.1\nNVIDIA H200, 143771 MiB, 570.1\n"
    done = subprocess.CompletedProcess([], 0, stdout=told)
    monkeypatch.setattr(facts.subprocess, "run", lambda *_, **__: done)
    assert facts.gpus() == ("NVIDIA H200, 143771 MiB, driver 570.1",) * 2
    monkeypatch.setattr(facts, "PRESSURE", tmp_path)
    assert "does not report pressure" in pressure()
    for name in ("io", "cpu"):
        (tmp_path / name).write_text("some avg10=12.50 avg60=3.00 avg300=1.00 total=2500000\n")
    assert pressure().endswith("one task waited: for the CPU 12 %, for the disk 12 %.")
