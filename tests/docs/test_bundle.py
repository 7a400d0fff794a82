"""The bundle: which packages it holds, and what it says of itself."""

import subprocess

import pytest

from docs.bundle import INSTALL, readme


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
