from pathlib import Path

import pytest

from course_utils.hardware.machine import pressure
from course_utils.hardware.machine import stalls as module
from course_utils.hardware.machine.stalls import cgroup_pressure

BOTH = (
    "some avg10=12.50 avg60=3.00 avg300=1.00 total=2500000\n"
    "full avg10=1.25 avg60=0.50 avg300=0.00 total=1000\n"
)


def test_the_figures_of_the_kernel_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "io").write_text(BOTH)
    (tmp_path / "cpu").write_text(BOTH.splitlines()[0])  # older kernels have no full here
    monkeypatch.setattr(module, "_MACHINE", tmp_path)
    found = pressure()
    assert found.io == module.Stall(12.5, 1.25, 3.0, 0.5, 2.5)
    assert found.cpu is not None
    assert found.cpu.full_10s == 0
    assert found.memory is None
    assert repr(found) == (
        "In the last 10 s, some task of the machine waited for the processor 12 %, "
        "the disk 12 % of it."
    )


def test_the_own_cgroup_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.pressure").write_text(BOTH)
    monkeypatch.setattr(module, "own_group", lambda: tmp_path)
    assert cgroup_pressure().memory is not None
    assert "of the cgroup waited for memory 12 %" in repr(cgroup_pressure())


def test_a_kernel_without_figures_gives_none_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MACHINE", tmp_path)
    found = pressure()
    assert (found.cpu, found.io, found.memory) == (None, None, None)
    assert "keeps no pressure figures" in repr(found)


def test_the_real_files_of_this_system_can_be_read() -> None:
    assert repr(pressure()).endswith(".")
    assert repr(cgroup_pressure()).endswith(".")
