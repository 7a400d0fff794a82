"""The packages of an installation with and without CUDA."""

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


def test_cpu_build_needs_no_cuda_packages() -> None:
    assert cpu_builds(LOCK) == ["torch==2.15.0+cpu", "torchvision==0.29.2+cpu"]
    assert requirements(LOCK, cpu=True).split() == [
        "numpy==2.4",
        "torch==2.15.0",
        "torchvision==0.29.2",
    ]
    assert requirements(LOCK, cpu=False).count("\n") == LOCK.count("\n") - 1


def test_lock_pins_torch_and_torchvision() -> None:
    assert len(cpu_builds((REPO / "requirements.lock").read_text("utf-8"))) == 2


def test_developer_lock_has_the_versions_of_the_learner_lock() -> None:
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
    ("requested", "driver", "cpu"),
    [(None, "", True), (None, "/usr/bin/nvidia-smi", False), ("1", "", False), ("0", "x", True)],
)
def test_machine_without_driver_gets_no_cuda(
    requested: str | None, driver: str, cpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA", raising=False)
    if requested is not None:
        monkeypatch.setenv("CUDA", requested)
    monkeypatch.setattr(install.sys, "platform", "linux")
    monkeypatch.setattr(install.shutil, "which", lambda name: driver or None)
    monkeypatch.setattr(install.Path, "exists", lambda path: False)
    assert install.wants_cpu() == cpu
    monkeypatch.setattr(install.sys, "platform", "darwin")
    assert not install.wants_cpu()


@pytest.mark.parametrize(
    ("installed_before", "reachable", "runs_twice", "cuda"),
    [
        ("", True, True, False),  # the index has a build without CUDA
        ("", False, True, True),  # the index cannot be reached
        ("2.15.0", True, False, True),  # a build with CUDA is installed and stays
        ("2.15.0+cpu", True, False, False),
    ],
)
def test_index_is_tried_once_and_may_be_unreachable(
    installed_before: str,
    reachable: bool,
    runs_twice: bool,
    cuda: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    calls: list[tuple[str, ...]] = []
    installed = [installed_before]

    def pip(*arguments: str, errors: int | None = None) -> int:
        calls.append(arguments)
        if install.INDEX in arguments:
            installed[0] = "2.15.0+cpu" if reachable else ""
            return not reachable
        wanted.append(Path(arguments[-1]).read_text("utf-8"))
        return 0

    wanted: list[str] = []
    lock = tmp_path / "lock"
    lock.write_text(LOCK)
    monkeypatch.setattr(install, "wants_cpu", lambda: True)
    monkeypatch.setattr(install, "installed_torch", lambda: installed[0])
    monkeypatch.setattr(install, "_pip", pip)
    assert install.main([str(lock)]) == 0
    assert len(calls) == 1 + runs_twice
    assert ("nvidia-cublas" in wanted[0]) == cuda
