"""The bundle: which packages it holds, and what it says of itself."""

import subprocess

import pytest

from course_utils.paths import REPO
from docs.bundle import INSTALL, cpu_builds, readme, requirements

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


@pytest.mark.parametrize("cuda", [True, False])
def test_a_bundle_says_for_what_it_is_and_what_it_lacks(cuda: bool) -> None:
    text = readme("Linux, x86_64", cuda=cuda, there={"slides": True, "book": False})
    assert "on Linux, x86_64." in text
    assert ("gigabytes of CUDA" in text) == cuda
    assert "| `slides` | the three lectures" in text
    assert "| `book` | not there" in text


def test_the_script_that_installs_is_one() -> None:
    subprocess.run(["sh", "-n"], input=INSTALL, text=True, check=True)
    assert "PIP_NO_INDEX=1" in INSTALL
