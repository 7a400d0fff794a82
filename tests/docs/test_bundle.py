"""The README and the install script of a bundle."""

import subprocess

import pytest

from docs.bundle import INSTALL, readme


@pytest.mark.parametrize("cuda", [True, False])
def test_readme_names_platform_and_missing_parts(cuda: bool) -> None:
    text = readme("Linux, x86_64", cuda=cuda, built={"slides": True, "book": False})
    assert "on Linux, x86_64." in text
    assert ("gigabytes of CUDA" in text) == cuda
    assert "| `slides` | the three lectures" in text
    assert "| `book` | missing" in text


def test_install_script_is_valid_shell() -> None:
    subprocess.run(["sh", "-n"], input=INSTALL, text=True, check=True)
    assert "PIP_NO_INDEX=1" in INSTALL
