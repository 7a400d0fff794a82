"""Put the course and all that it needs into one folder, which installs without a network.

    python docs/bundle.py    # into build/bundle, for the Python and the platform of this machine

It holds the project as it was committed, the packages of `requirements.lock` as wheels, the data of
size S and M, and the slides and the book as far as they can be built here. What the folder lacks is
said in its README.

On Linux the wheels of torch bring CUDA. Where pip finds `torch==VERSION+cpu` these are taken, which
are far smaller: name their index, which PyTorch's page tells, in PIP_EXTRA_INDEX_URL.
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
from keepfed.words import size

OUT = REPO / "build" / "bundle"
SIZES = "S", "M"
PAGES = {"slides": "slides/built", "book": "docs/book/built"}  # what a verb builds, and where
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

INSTALL = f"""\
#!/bin/sh
# Install the course from this folder; no network is asked.
set -e
cd "$(dirname "$0")/course"
export PIP_NO_INDEX=1 PIP_FIND_LINKS=../wheelhouse PIP_DISABLE_PIP_VERSION_CHECK=1
${{PYTHON:-python{PYTHON}}} -m venv .venv
.venv/bin/python -m pip install -r ../wheelhouse/requirements.txt
.venv/bin/python -m pip install --no-deps -e .
touch .venv/.ready  # so that make does not install again
echo "Installed. To begin: cd course && make lab"
"""
_README = """\
# Fast Data Loaders, in one folder

For Python {python} on {system}. {torch}

Copy the folder to a disk that can be written to. Then, without a network:

```bash
sh install.sh           # a Python of another name: PYTHON=/path/of/python{python} sh install.sh
cd course && make lab   # where there is no make: .venv/bin/course lab
```

A folder that was made on Windows is installed there, in PowerShell and in `course`, by the same
steps: `$env:PIP_NO_INDEX=1`, `$env:PIP_FIND_LINKS="../wheelhouse"`, `py -{python} -m venv
.venv`, `.venv/Scripts/pip install -r ../wheelhouse/requirements.txt`, `.venv/Scripts/pip install
--no-deps -e .` and `.venv/Scripts/course lab`.

| | |
|---|---|
| `course` | the project with its notebooks, and data of size {sizes[0]} and {sizes[1]} |
| `wheelhouse` | every package that it needs |
{rows}
The course begins with `course/README.md`, and a teacher with `course/slides/INSTRUCTOR.md`.
Chromium, which draws the PDFs of the slides and drives the tests of the browser, is not here.
"""


def readme(system: str, *, cuda: bool, there: dict[str, bool]) -> str:
    """Return what a bundle says of itself; `there` tells of slides and book whether it has them."""
    texts = {"slides": "the three lectures, as HTML and PDF", "book": "the course as pages to read"}
    rows = "".join(
        f"| `{name}` | {texts[name] if is_there else 'not there: it could not be built'} |\n"
        for name, is_there in there.items()
    )
    torch = "PyTorch is here in its build for CPUs, without CUDA."
    if cuda:
        torch = (
            "No build of this PyTorch without CUDA was found, so gigabytes of CUDA are here too; "
            "it runs on machines without a GPU as well."
        )
    return _README.format(python=PYTHON, system=system, torch=torch, sizes=SIZES, rows=rows)


def main() -> int:
    """Make the bundle, a part after the other, and say how large each is."""
    try:
        _project(OUT / "course")
        _wheels(OUT / "wheelhouse")
    except subprocess.CalledProcessError as error:
        command = " ".join(map(str, error.cmd[:4]))
        print(f"`{command} …` has failed: mend what it says above, and run `make bundle` again.")
        return 1
    text = readme(
        f"{platform.system()}, {platform.machine()}",
        cuda=any((OUT / "wheelhouse").glob("nvidia_*.whl")),
        there={verb: _pages(verb, OUT / verb) for verb in PAGES},
    )
    (OUT / "README.md").write_text(text, "utf-8")
    (OUT / "install.sh").write_text(INSTALL, "utf-8", newline="\n")
    for part in (*sorted(OUT.iterdir()), OUT):
        files = [part, *part.rglob("*")]
        total = sum(path.stat().st_size for path in files if path.is_file())
        print(f"{part.relative_to(REPO)}: {size(total)}")
    return 0


def _project(folder: Path) -> None:
    """Write the project as it was committed, and its data."""
    shutil.rmtree(folder, ignore_errors=True)
    archive = subprocess.check_output(["git", "archive", "HEAD"], cwd=REPO)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    env = {**os.environ, "COURSE_DATA": str(folder / "data"), "PYTHONDONTWRITEBYTECODE": "1"}
    for data_size in SIZES:
        make = [sys.executable, "-m", "course_utils.command.cli", "data", "--size", data_size]
        subprocess.check_call(make, cwd=folder, env=env)


def _wheels(folder: Path) -> None:
    """Collect the packages, and write down which."""
    lock = (REPO / "requirements.lock").read_text("utf-8")
    build = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir", "wheel"]
    collect = [*pip, "--no-deps", "--wheel-dir", str(folder), "--find-links", str(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    cpu = not subprocess.run([*collect, *cpu_builds(lock)], capture_output=True).returncode
    wanted = folder / "requirements.txt"
    wanted.write_text(requirements(lock, cpu=cpu), "utf-8")
    subprocess.check_call([*collect, "--requirement", str(wanted), *build])


def _pages(verb: str, folder: Path) -> bool:
    """Build pages where that is possible, and copy what is built; return whether there is any."""
    subprocess.run(["make", verb], cwd=REPO)
    shutil.rmtree(folder, ignore_errors=True)
    built = REPO / PAGES[verb]
    if built.exists():
        shutil.copytree(built, folder)
    return built.exists()


if __name__ == "__main__":
    raise SystemExit(main())
