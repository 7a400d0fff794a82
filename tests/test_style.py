"""Style and types: what `make lint` says."""

import subprocess
import sys

import pytest

from course_utils.paths import REPO


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"])
def test_style_and_types_are_right(command: str) -> None:
    run = [sys.executable, "-m", *command.split()]
    said = subprocess.run(run, cwd=REPO, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
