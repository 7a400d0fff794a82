"""A wheel of the course works by itself: away from its checkout, with nothing but what it holds."""

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from course_utils.paths import REPO

PROGRAM = """
import importlib, pkgutil, sys
sys.path[:] = [{wheel!r}, *[path for path in sys.path if path], *{libraries!r}]
import course_utils as cu
import notebooks.exercises, notebooks.stories
from course_utils.errors import CourseError
from course_utils.paths import recording

print(cu.check("02.1", 10_000_000, 1007.2, 10.07).status)
print("<svg" in cu.simulate(cu.Pipeline()).timeline().to_html())
try:
    recording("disk_use.txt")
except CourseError as error:
    print("checkout" in str(error))
for package in (cu, notebooks.exercises, notebooks.stories):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        found = importlib.import_module(module.name)
        assert found.__file__.startswith({wheel!r}), found
"""


@pytest.mark.slow
def test_what_the_notebooks_import_check_and_show_comes_in_the_wheel(tmp_path: Path) -> None:
    if importlib.util.find_spec("setuptools") is None and not os.environ.get("CI"):
        pytest.skip("setuptools, which builds the wheel, is not installed here")
    source, wheel = tmp_path / "source", tmp_path / "wheel"
    leave = shutil.ignore_patterns("*.egg-info", "__pycache__", ".*", "data", "work", "build")
    for name in ("course_utils", "data_scripts", "notebooks"):
        shutil.copytree(REPO / name, source / name, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE", "LICENSE-texts"):
        shutil.copy(REPO / name, source)
    alone = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    run(tmp_path, "-m", "pip", "wheel", "-q", *alone, "-w", str(tmp_path), str(source))
    (built,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(built).extractall(wheel)
    shutil.rmtree(source)
    libraries = [path for path in sys.path if path.endswith("-packages")]
    program = PROGRAM.format(wheel=str(wheel), libraries=libraries)
    assert run(tmp_path, "-I", "-S", "-c", program).split() == ["right", "True", "True"]


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
