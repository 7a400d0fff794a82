from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from course_utils.hardware.machine import facts, pressure, probe
from course_utils.hardware.machine.disk import DiskSpeed
from course_utils.hardware.machine.facts import Machine

GB = 10**9
LARGE = Machine(
    system="Linux 6.1, x86_64",
    cores=8,
    cores_of_machine=16,
    memory=64 * GB,
    memory_free=60 * GB,
    has_shm=True,
    shm=32 * GB,
    shm_free=32 * GB,
    start_method="fork",
    python="3.12.1",
    torch="2.9.0",
    gpus=("NVIDIA H200, 143771 MiB, driver 570.1",),
    folder=Path("/data"),
    disk_free=900 * GB,
    disk=DiskSpeed(1_000, 3_000, 67, True),
)


def row(machine: Machine, name: str) -> str:
    return next(line for line in str(machine).splitlines() if line.startswith(name))


def test_probe_looks_at_this_machine(tmp_path: Path) -> None:
    machine = probe(tmp_path)
    assert machine.python == sys.version.split()[0]
    assert machine.cores is not None
    assert 1 <= machine.cores <= (machine.cores_of_machine or 0)
    assert len(str(machine).splitlines()) == 10
    assert list(tmp_path.iterdir()) == []


def test_probe_imports_no_torch_and_leaves_the_start_method_open() -> None:
    program = """import multiprocessing, sys
from course_utils.hardware.machine import probe
probe('.')
print('torch' in sys.modules, multiprocessing.get_start_method(allow_none=True))"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "False None"


def test_probe_survives_a_machine_that_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: Any) -> Any:
        raise PermissionError("not for you")

    for name in ("usable_cores", "all_cores", "memory", "memory_free", "shm_size", "gpus"):
        monkeypatch.setattr(facts, name, silent)
    monkeypatch.setattr(facts, "disk_free", silent)
    monkeypatch.setattr(facts, "torch_version", silent)
    page = str(probe(tmp_path))
    assert page.count("unknown") >= 4
    assert "not installed" in page


def test_a_folder_that_is_not_there_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    assert probe(tmp_path / "data" / "events-M").folder == tmp_path


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        ({}, "cores", "8 usable of 16"),
        ({"cores": 1}, "cores", "small: workers help while they wait"),
        ({"memory": 2 * GB}, "memory", "small: take data of size S"),
        ({"shm_free": 64 * 10**6}, "/dev/shm", "--shm-size=2g"),
        ({"has_shm": False}, "/dev/shm", "none on this system"),
        ({"shm": None}, "/dev/shm", "unknown"),
        ({"start_method": "spawn"}, "start method", "%%worker_module"),
        ({"python": "3.15.0"}, "Python", "tried with 3.11 to 3.14"),
        ({"torch": None}, "torch", "run `make lab`"),
        ({"gpus": ()}, "GPU", "none  "),
        ({"disk_free": GB}, "disk ", "small: "),
        ({"disk": None}, "disk speed", "unknown"),
        ({"disk": DiskSpeed(10, 90, 67, True)}, "disk speed", "slow: "),
        ({"disk": DiskSpeed(10, 9_000, 67, False)}, "disk speed", "warm, from memory"),
    ],
)
def test_each_line_says_what_it_means(change: dict[str, Any], name: str, says: str) -> None:
    assert says in row(replace(LARGE, **change), name)


def test_a_large_machine_has_nothing_small() -> None:
    assert "small:" not in str(LARGE)
    assert "unknown" not in str(LARGE)


def groups(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture
def in_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def enter(files: dict[str, str], own: str = "0::/\n") -> None:
        monkeypatch.setattr(facts, "CGROUPS", groups(tmp_path / "groups", files))
        monkeypatch.setattr(facts, "_OWN_CGROUP", groups(tmp_path, {"own": own}) / "own")
        monkeypatch.setattr(facts, "all_cores", lambda: 16)
        monkeypatch.setattr(facts.os, "sched_getaffinity", lambda _: range(8), raising=False)

    return enter


@pytest.mark.parametrize(
    ("files", "own", "cores"),
    [
        ({"cpu.max": "max 100000"}, "0::/\n", 8),
        ({"cpu.max": "50000 100000"}, "0::/\n", 1),
        ({"cpu.max": "200000 100000"}, "0::/\n", 2),
        ({"cpu.max": "max 100000", "job/cpu.max": "250000 100000"}, "0::/job\n", 2),
        ({"job/cpu.max": "200000 100000", "job/step/cpu.max": "max 1"}, "0::/job/step\n", 2),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, "1:cpu:/\n", 2),
        ({"cpu/cpu.cfs_quota_us": "-1"}, "1:cpu:/\n", 8),
    ],
)
def test_cores_are_those_of_the_affinity_and_of_every_group_around(
    in_group: Callable[..., None], files: dict[str, str], own: str, cores: int
) -> None:
    in_group(files, own)
    assert facts.usable_cores() == cores


@pytest.mark.parametrize(("stat", "free"), [("", 100), ("anon 7\ninactive_file 300000000\n", 400)])
def test_memory_is_limited_by_the_container_and_its_files_in_memory_count_as_free(
    in_group: Callable[..., None], stat: str, free: int
) -> None:
    in_group({"memory.max": "500000000", "memory.current": "400000000", "memory.stat": stat})
    assert (facts.memory(), facts.memory_free()) == (500_000_000, free * 10**6)
    in_group({"memory.max": "max"})
    assert facts.memory() > 500_000_000


def test_memory_is_limited_by_the_job_in_groups_of_version_1(in_group: Callable[..., None]) -> None:
    job = "memory/slurm/job_7"
    files = {"memory/memory.limit_in_bytes": "9223372036854771712"}
    files |= {"memory/memory.usage_in_bytes": "800000000"}
    files |= {f"{job}/memory.limit_in_bytes": "500000000"}
    files |= {f"{job}/memory.usage_in_bytes": "400000000"}
    files |= {f"{job}/memory.stat": "inactive_file 9\ntotal_inactive_file 100000000\n"}
    in_group(files, "4:memory,hugetlb:/slurm/job_7\n1:cpu,cpuacct:/\n")
    assert (facts.memory(), facts.memory_free()) == (500_000_000, 200_000_000)


def test_gpus_are_read_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "NVIDIA H200, 143771 MiB, 570.1\nNVIDIA H200, 143771 MiB, 570.1\n"
    done = subprocess.CompletedProcess([], 0, stdout=told)
    monkeypatch.setattr(facts.subprocess, "run", lambda *_, **__: done)
    assert facts.gpus() == ("NVIDIA H200, 143771 MiB, driver 570.1",) * 2


@pytest.mark.parametrize("chosen", multiprocessing.get_all_start_methods())
def test_the_start_method_is_that_of_the_notebooks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    monkeypatch.setenv("COURSE_START_METHOD", chosen)
    assert probe(tmp_path).start_method == chosen


def test_the_pressure_is_read_where_the_kernel_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert repr(pressure()).endswith(".")
    monkeypatch.setattr(facts, "PRESSURE", tmp_path)
    assert "keeps no pressure figures" in repr(pressure())
    for name in ("io", "cpu"):
        (tmp_path / name).write_text("some avg10=12.50 avg60=3.00 avg300=1.00 total=2500000\n")
    assert pressure() == facts.Pressure(cpu=12.5, io=12.5)
    assert repr(pressure()) == (
        "In the last 10 s, some task of the machine waited for the processor 12 %, "
        "the disk 12 % of it."
    )
