"""Which packages an installation takes: with CUDA, or without."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_utils.paths import REPO
from docs import install
from docs.install import cpu_builds, requirements

LOCK = """\
# tested
numpy==2.4
nvidia-cublas==13.4 ; sys_platform == 'linux'
cuda-bindings==13.5
torch==2.15.0
torchvision==0.29.2
triton==3.9.0
"""


def test_a_torch_without_cuda_needs_no_packages_of_cuda() -> None:
    assert cpu_builds(LOCK) == ["torch==2.15.0+cpu", "torchvision==0.29.2+cpu"]
    assert requirements(LOCK, cpu=True).split() == [
        "numpy==2.4",
        "torch==2.15.0",
        "torchvision==0.29.2",
    ]
    assert requirements(LOCK, cpu=False).count("\n") == LOCK.count("\n") - 1


def test_the_lock_names_what_the_cpu_builds_stand_for() -> None:
    assert len(cpu_builds((REPO / "requirements.lock").read_text("utf-8"))) == 2


def test_the_lock_of_developers_has_the_versions_of_the_learners() -> None:
    learners, developers = (
        {
            line.partition(" ;")[0]
            for line in (REPO / f"requirements{kind}.lock").read_text("utf-8").splitlines()[2:]
        }
        for kind in ("", "-dev")
    )
    assert learners < developers
    tools = ("pytest", "mypy", "playwright", "sphinx", "moto")
    assert not [line for line in learners if line.partition("==")[0] in tools]


@pytest.mark.parametrize(
    ("asked", "driver", "cpu"),
    [(None, "", True), (None, "/usr/bin/nvidia-smi", False), ("1", "", False), ("0", "x", True)],
)
def test_a_machine_without_a_driver_takes_no_cuda(
    asked: str | None, driver: str, cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA", raising=False)
    if asked is not None:
        monkeypatch.setenv("CUDA", asked)
    monkeypatch.setattr(install.sys, "platform", "linux")
    monkeypatch.setattr(install.shutil, "which", lambda name: driver or None)
    monkeypatch.setattr(install.Path, "exists", lambda path: False)
    assert install.wants_cpu() == cpu
    monkeypatch.setattr(install.sys, "platform", "darwin")
    assert not install.wants_cpu()


@pytest.mark.parametrize(
    ("there", "reached", "asks_twice", "cuda"),
    [
        ("", True, True, False),  # the index gives a build without CUDA
        ("", False, True, True),  # it cannot be reached
        ("2.15.0", True, False, True),  # a build with CUDA is installed already, and stays
        ("2.15.0+cpu", True, False, False),
    ],
)
def test_the_index_is_asked_once_and_can_be_missing(
    there: str,
    reached: bool,
    asks_twice: bool,
    cuda: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    calls: list[tuple[str, ...]] = []
    installed = [there]

    def pip(*arguments: str, errors: int | None = None) -> int:
        calls.append(arguments)
        if install.INDEX in arguments:
            installed[0] = "2.15.0+cpu" if reached else ""
            return not reached
        wanted.append(Path(arguments[-1]).read_text("utf-8"))
        return 0

    wanted: list[str] = []
    lock = tmp_path / "lock"
    lock.write_text(LOCK)
    monkeypatch.setattr(install, "wants_cpu", lambda: True)
    monkeypatch.setattr(install, "installed_torch", lambda: installed[0])
    monkeypatch.setattr(install, "_pip", pip)
    assert install.main([str(lock)]) == 0
    assert len(calls) == 1 + asks_twice
    assert ("nvidia-cublas" in wanted[0]) == cuda
