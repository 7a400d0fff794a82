"""Collect the course and its packages in one folder that installs without a network.

    python docs/bundle.py                            # into build/bundle, for this system
    python docs/bundle.py linux windows macos --python 3.12    # for a class with any of these

The folder contains the committed project, the packages of `requirements.lock` as wheels, the data
of size S and M, and the slides and the book if they can be built here. Its README lists missing
parts. Wheels are for x86-64 on Linux and Windows, and for Apple silicon on macOS.

The wheels of torch for Linux come from PyTorch's index of CPU builds. If it cannot be reached, the
bundle contains CUDA, which is much larger.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from packaging.requirements import Requirement

from course_utils.paths import REPO
from docs.install import INDEX, cpu_builds, requirements
from keepfed.formatting import size

OUT = REPO / "build" / "bundle"
SIZES = "S", "M"
PAGES = {"slides": "slides/built", "book": "docs/book/built"}  # make target, and its output folder


SYSTEMS: dict[str, tuple[dict[str, str], list[str]]] = {  # values of markers, platforms of wheels
    "linux": (
        {"sys_platform": "linux", "os_name": "posix", "platform_machine": "x86_64"},
        # pip does not infer older platforms from a newer one
        [*(f"manylinux_2_{minor}_x86_64" for minor in range(28, 16, -1)), "manylinux2014_x86_64"],
    ),
    "windows": (
        {"sys_platform": "win32", "os_name": "nt", "platform_machine": "AMD64"},
        ["win_amd64"],
    ),
    "macos": (
        {"sys_platform": "darwin", "os_name": "posix", "platform_machine": "arm64"},
        ["macosx_14_0_arm64"],
    ),
}

INSTALL = """\
#!/bin/sh
# Install the course from this folder, without a network.
set -e
cd "$(dirname "$0")/course"
export PIP_NO_INDEX=1 PIP_FIND_LINKS=../wheelhouse PIP_DISABLE_PIP_VERSION_CHECK=1
${{PYTHON:-python{python}}} -m venv .venv
.venv/bin/python -m pip install -r ../wheelhouse/requirements.txt
.venv/bin/python -m pip install --no-deps -e keepfed -e .
touch .venv/.ready  # so that make does not install again
echo "Installed. Start with: cd course && make lab"
"""
INSTALL_ON_WINDOWS = """\
@rem Install the course from this folder, without a network.
cd /d "%~dp0course"
set PIP_NO_INDEX=1
set PIP_FIND_LINKS=../wheelhouse
py -{python} -m venv .venv || exit /b 1
.venv\\Scripts\\python -m pip install -r ../wheelhouse/requirements.txt || exit /b 1
.venv\\Scripts\\python -m pip install --no-deps -e keepfed -e . || exit /b 1
echo Installed. Start with: cd course, and then .venv\\Scripts\\course lab
"""
_README = """\
# Fast Data Loaders, in one folder

This bundle is for Python {python} on {systems}. {torch}

Install Python {python} first. Copy this folder to a writable disk. On Linux and macOS, run, without
a network:

```bash
sh install.sh           # for another path: PYTHON=/path/of/python{python} sh install.sh
cd course && make lab   # without make: .venv/bin/course lab
```

On Windows, double-click `install.bat`. Then run `.venv\\Scripts\\course lab` in `course`.

| | |
|---|---|
| `course` | the project with its notebooks, and data of size {sizes[0]} and {sizes[1]} |
| `wheelhouse` | all packages of the course |
{rows}
Learners start with `course/README.md`, teachers with `course/slides/INSTRUCTOR.md`. The folder does
not include Python or Chromium, which prints the slides as PDF and runs the browser tests.
"""


def readme(systems: Iterable[str], python: str, *, cuda: bool, built: dict[str, bool]) -> str:
    """Return the README of a bundle. `built` states whether slides and book are included."""
    texts = {"slides": "the three lectures, as HTML and PDF", "book": "the course as pages to read"}
    rows = "".join(
        f"| `{name}` | {texts[name] if included else 'missing, because the build failed'} |\n"
        for name, included in built.items()
    )
    torch = "It contains the CPU build of PyTorch, without CUDA."
    if cuda:
        torch = (
            "It contains gigabytes of CUDA, because no CPU build of this PyTorch was found. It "
            "also runs on machines without a GPU."
        )
    names = ", ".join(systems)
    return _README.format(python=python, systems=names, torch=torch, sizes=SIZES, rows=rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the bundle part by part, and print the size of each part."""
    here = {"win32": "windows", "darwin": "macos"}.get(sys.platform, "linux")
    parser = argparse.ArgumentParser(description="Make a folder that installs without a network.")
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=" ".join(SYSTEMS))
    parser.add_argument("--python", default="", help="version, such as 3.12")
    options = parser.parse_args(arguments)
    systems = options.systems or [here]
    if unknown := set(systems) - SYSTEMS.keys():
        parser.error(f"Unknown system {min(unknown)!r}. Choose from {', '.join(SYSTEMS)}.")
    found = re.search(r"3\.\d+", options.python)  # make gives the name of a program
    python = found[0] if found else f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        _project(OUT / "course")
        _wheels(OUT / "wheelhouse", systems, python)
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd[:4]))
        print(f"`{command} …` failed. Fix the error above, and run `make bundle` again.")
        return 1
    text = readme(
        systems,
        python,
        cuda=any((OUT / "wheelhouse").glob("nvidia_*.whl")),
        built={target: _pages(target, OUT / target) for target in PAGES},
    )
    (OUT / "README.md").write_text(text, "utf-8")
    (OUT / "install.sh").write_text(INSTALL.format(python=python), "utf-8", newline="\n")
    batch = INSTALL_ON_WINDOWS.format(python=python)
    (OUT / "install.bat").write_text(batch, "utf-8", newline="\r\n")
    for part in (*sorted(OUT.iterdir()), OUT):
        files = [part, *part.rglob("*")]
        total = sum(path.stat().st_size for path in files if path.is_file())
        print(f"{part.relative_to(REPO)}: {size(total)}")
    return 0


def _project(folder: Path) -> None:
    """Write the committed project and its data."""
    shutil.rmtree(folder, ignore_errors=True)
    archive = subprocess.check_output(["git", "archive", "HEAD"], cwd=REPO)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    env = {**os.environ, "COURSE_DATA": str(folder / "data"), "PYTHONDONTWRITEBYTECODE": "1"}
    for data_size in SIZES:
        make = [sys.executable, "-m", "course_utils.command.cli", "data", "--size", data_size]
        subprocess.check_call(make, cwd=folder, env=env)


def _wheels(folder: Path, systems: Iterable[str], python: str) -> None:
    """Collect the packages as wheels, and write their requirements file."""
    lock = (REPO / "requirements.lock").read_text("utf-8")
    build = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cpu = True
    if "linux" in systems:
        command = download(folder, cpu_builds(lock), "linux", f"{python}.99")
        quick = ("--index-url", INDEX, "--retries", "1", "--timeout", "10")
        cpu = not subprocess.run([*command, *quick], capture_output=True).returncode
    wanted = requirements(lock, cpu=cpu)
    (folder / "requirements.txt").write_text(wanted, "utf-8")
    for system in systems:
        # a learner may have any patch release, and some packages need 3.11.5
        newest, first = (pins_for(wanted, system, f"{python}.{patch}") for patch in (99, 0))
        subprocess.check_call(download(folder, [*newest, *build], system, f"{python}.99"))
        if older := [pin for pin in first if pin not in newest]:
            subprocess.check_call(download(folder, older, system, f"{python}.0"))


def pins_for(pins: str, system: str, python: str) -> list[str]:
    """Return the pins that apply to a system and a Python such as 3.11.5, without markers.

    `pins` has one pin per line. pip evaluates markers for the machine that downloads.
    """
    values, _ = SYSTEMS[system]
    version = python.rpartition(".")[0]
    values = {**values, "python_version": version, "python_full_version": python}
    all_pins = map(Requirement, pins.splitlines())
    return [f"{p.name}{p.specifier}" for p in all_pins if not p.marker or p.marker.evaluate(values)]


def download(folder: Path, pins: Iterable[str], system: str, python: str) -> list[str]:
    """Return the command that downloads the wheels of a system into a folder."""
    options = ["--no-deps", "--only-binary=:all:", "--python-version", python]
    options += [f"--platform={platform}" for platform in SYSTEMS[system][1]]
    where = [f"--dest={folder}", f"--find-links={folder}"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "download"]
    return [*pip, *options, *where, *pins]


def _pages(target: str, folder: Path) -> bool:
    """Build pages with make and copy them. Return whether they exist."""
    subprocess.run(["make", target], cwd=REPO)
    shutil.rmtree(folder, ignore_errors=True)
    built = REPO / PAGES[target]
    if built.exists():
        shutil.copytree(built, folder)
    return built.exists()


if __name__ == "__main__":
    raise SystemExit(main())
