"""Collect the course and its packages in one folder that installs without a network.

    python docs/bundle.py    # into build/bundle, for the Python and platform of this machine

The folder contains the committed project, the packages of `requirements.lock` as wheels, the data
of size S and M, and the slides and the book if they can be built here. Its README lists missing
parts.

On Linux the wheels of torch include CUDA. If pip finds `torch==VERSION+cpu`, the bundle uses these
wheels, which are much smaller. Set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU builds.
"""

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

from course_utils.paths import REPO
from docs.install import cpu_builds, requirements
from keepfed.formatting import size

OUT = REPO / "build" / "bundle"
SIZES = "S", "M"
PAGES = {"slides": "slides/built", "book": "docs/book/built"}  # make target, and its output folder
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

INSTALL = f"""\
#!/bin/sh
# Install the course from this folder, without a network.
set -e
cd "$(dirname "$0")/course"
export PIP_NO_INDEX=1 PIP_FIND_LINKS=../wheelhouse PIP_DISABLE_PIP_VERSION_CHECK=1
${{PYTHON:-python{PYTHON}}} -m venv .venv
.venv/bin/python -m pip install -r ../wheelhouse/requirements.txt
.venv/bin/python -m pip install --no-deps -e .
touch .venv/.ready  # so that make does not install again
echo "Installed. Start with: cd course && make lab"
"""
_README = """\
# Fast Data Loaders, in one folder

This bundle is for Python {python} on {system}. {torch}

Copy the folder to a writable disk. Then run, without a network:

```bash
sh install.sh           # for another Python: PYTHON=/path/of/python{python} sh install.sh
cd course && make lab   # without make: .venv/bin/course lab
```

On Windows, install a bundle that was made on Windows. Run these steps in PowerShell, in the folder
`course`: `$env:PIP_NO_INDEX=1`, `$env:PIP_FIND_LINKS="../wheelhouse"`, `py -{python} -m venv
.venv`, `.venv/Scripts/pip install -r ../wheelhouse/requirements.txt`, `.venv/Scripts/pip install
--no-deps -e .` and `.venv/Scripts/course lab`.

| | |
|---|---|
| `course` | the project with its notebooks, and data of size {sizes[0]} and {sizes[1]} |
| `wheelhouse` | all packages of the course |
{rows}
Learners start with `course/README.md`, teachers with `course/slides/INSTRUCTOR.md`. Chromium is not
included. It prints the slides as PDF and runs the browser tests.
"""


def readme(system: str, *, cuda: bool, built: dict[str, bool]) -> str:
    """Return the README of a bundle.

    Args:
        system: Operating system and processor.
        cuda: Whether the bundle contains CUDA.
        built: Whether slides and book are included.
    """
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
    return _README.format(python=PYTHON, system=system, torch=torch, sizes=SIZES, rows=rows)


def main() -> int:
    """Make the bundle part by part, and print the size of each part."""
    try:
        _project(OUT / "course")
        _wheels(OUT / "wheelhouse")
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd[:4]))
        print(f"`{command} …` failed. Fix the error above, and run `make bundle` again.")
        return 1
    text = readme(
        f"{platform.system()}, {platform.machine()}",
        cuda=any((OUT / "wheelhouse").glob("nvidia_*.whl")),
        built={target: _pages(target, OUT / target) for target in PAGES},
    )
    (OUT / "README.md").write_text(text, "utf-8")
    (OUT / "install.sh").write_text(INSTALL, "utf-8", newline="\n")
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


def _wheels(folder: Path) -> None:
    """Collect the packages as wheels, and write their requirements file."""
    lock = (REPO / "requirements.lock").read_text("utf-8")
    build = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "wheel"]
    collect = [*pip, "--no-deps", "--wheel-dir", str(folder), "--find-links", str(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    cpu = not subprocess.run([*collect, *cpu_builds(lock)], capture_output=True).returncode
    wanted = folder / "requirements.txt"
    wanted.write_text(requirements(lock, cpu=cpu), "utf-8")
    subprocess.check_call([*collect, "--requirement", str(wanted), *build])


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
