"""An environment for each library that is not part of the course.

It lies in `.peers`, is made when somebody asks for the library, and sees the packages of the
course, torch among them: so the library brings only what is missing, or other versions of what it
does not get on with, and neither the course nor another library meets those. Whoever removes the
folder is rid of all of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

from course_stories.peers.measure import Measured
from course_stories.peers.peer import Package
from course_utils.errors import CourseError
from course_utils.paths import REPO, course_home
from keepfed.files import need_room

HOME = course_home() / ".peers"
_SHARED = "course.pth"
_LONGEST_S = 900.0  # of a download on a slow line
_LONGEST_TRIAL_S = 120.0
_OFFLINE = re.compile(r"NewConnectionError|NameResolution|ConnectTimeout|ProxyError|SSLError")


def install(package: Package, home: Path = HOME) -> None:
    """Install a library, with all that it needs and the course has not.

    Raises:
        CourseError: there is no network, no room, or no such package for this Python.
    """
    folder = home / package.name
    folder.mkdir(parents=True, exist_ok=True)
    need_room(folder, 2 * 10**6 * package.megabytes, otherwise="or do without this library")
    if not list(folder.rglob(_SHARED)):  # the last file that is written
        venv.create(folder, with_pip=True, clear=True)
        _share(folder)
    wanted = f"{package.name}=={package.version}"
    # what has no wheel would be compiled, which takes a compiler and long
    options = ("--no-input", "--retries", "1", "--only-binary", ":all:")
    done = _run(
        python_of(package, home), "-m", "pip", "install", *options, wanted, seconds=_LONGEST_S
    )
    if done.returncode:
        raise CourseError(_why_not(wanted, done.stderr))


def is_installed(package: Package, home: Path = HOME) -> bool:
    """Tell whether a library is there, in the version that we tried."""
    called = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
    return any((home / package.name).rglob(called))


def measure_there(task: str, name: str, package: Package, home: Path = HOME) -> Measured:
    """Measure a peer in a process of its environment.

    Raises:
        CourseError: it came to no end.
    """
    call = ("-m", "course_stories.peers", task, name)
    done = _run(python_of(package, home), *call, seconds=_LONGEST_TRIAL_S)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise CourseError(f"{name} came to no end ({said[-1]}); read what we measured instead.")
    return Measured.from_row(json.loads(done.stdout.splitlines()[-1]))


def python_of(package: Package, home: Path = HOME) -> Path:
    """Return the Python of the environment of a library."""
    return home / package.name / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _share(folder: Path) -> None:
    """Let a new environment find the packages of this one, behind its own."""
    own = next(folder.rglob("site-packages"))
    ours = [path for path in sys.path if path.endswith("-packages")]  # Debian has dist-packages
    (own / _SHARED).write_text("\n".join(ours) + "\n", "utf-8")


def _run(python: Path, *arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [str(python), *arguments],
            cwd=REPO,
            # none of them may ask its hub, or draw progress
            env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, 1, "", f"it took more than {seconds:.0f} s")


def _why_not(wanted: str, said: str) -> str:
    if _OFFLINE.search(said):
        return (
            f"{wanted} cannot be fetched, as the package index is not reached; look at your "
            "network, or read what we measured instead."
        )
    last = said.strip().splitlines()[-1:] or ["it said nothing"]
    return f"pip cannot install {wanted} ({last[0]}); read what we measured instead."
