"""A hanging test fails, prints the stacks of its processes, and lets other tests run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from course_utils.paths import REPO

TESTS = """
import multiprocessing, threading

def the_child_waits_here():
    threading.Event().wait()

def test_waits():
    child = multiprocessing.get_context("spawn").Process(target=the_child_waits_here, daemon=True)
    child.start()
    try:
        child.join()
    finally:
        child.kill()

def test_runs():
    pass
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="py-spy works without sudo only on Linux")
@pytest.mark.full
def test_hanging_test_shows_stacks_and_next_test_runs(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.hangs", "--rootdir", str(tmp_path), tmp_path],
        env={**os.environ, "COURSE_TEST_LIMIT_S": "6", "PYTEST_ADDOPTS": ""},
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 1 passed" in run.stdout
    assert "This took more than 6 s" in run.stdout
    assert "test_waits (test_it.py" in run.stdout
    assert "the_child_waits_here (test_it.py" in run.stdout
