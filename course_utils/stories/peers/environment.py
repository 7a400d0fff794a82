"""A separate environment for each library that is not part of the course.

The environment is created in `.peers` on request, and can import the packages of the course,
including torch. The installation therefore adds only missing packages, or other versions of
incompatible ones, and cannot affect the course or other libraries. Delete the folder to remove all
of them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import keepfed
from course_utils.errors import CourseError
from course_utils.paths import REPO, course_home
from course_utils.stories.peers.peer import Package
from keepfed.files import require_free_space

_SHARED = "course.pth"
_OFFLINE = re.compile(r"NewConnectionError|NameResolution|ConnectTimeout|ProxyError|SSLError")


def home() -> Path:
    """Return the folder of all environments and of their results."""
    return course_home() / ".peers"


def install(package: Package) -> None:
    """Install a library and the dependencies that the course lacks.

    Raises:
        CourseError: If there is no network, not enough space, or no package for this Python.
    """
    folder = home() / package.name
    folder.mkdir(parents=True, exist_ok=True)
    require_free_space(
        folder, 2 * 10**6 * package.megabytes, otherwise="or do without this library"
    )
    if not list(folder.rglob(_SHARED)):  # written last
        venv.create(folder, with_pip=True, clear=True)
        _share(folder)
    wanted = f"{package.name}=={package.version}"
    # only wheels, because compiling needs a compiler and much time
    options = ("--no-input", "--retries", "1", "--timeout", "60", "--only-binary", ":all:")
    pip = [str(python_of(package)), "-m", "pip", "install", *options, wanted]
    done = subprocess.run(pip, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise CourseError(_why_not(wanted, done.stderr))


def is_installed(package: Package) -> bool:
    """Return whether a library is installed in the version that we tested."""
    called = f"{package.name.replace('-', '_')}-{package.version}.dist-info"
    return any((home() / package.name).rglob(called))


def python_of(package: Package) -> Path:
    """Return the Python interpreter in the environment of a library."""
    return home() / package.name / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _share(folder: Path) -> None:
    """Make the packages of this environment importable in a new one, after its own."""
    own = next(folder.rglob("site-packages"))
    ours = [path for path in sys.path if path.endswith("-packages")]  # Debian has dist-packages
    ours += [str(REPO), str(Path(keepfed.__file__).parents[1])]  # of an editable installation
    (own / _SHARED).write_text("\n".join(ours) + "\n", "utf-8")


def _why_not(wanted: str, said: str) -> str:
    if _OFFLINE.search(said):
        return (
            f"Cannot download {wanted}, because the package index is not reachable. Check your "
            "network, or use our recorded results."
        )
    last = said.strip().splitlines()[-1:] or ["no message"]
    return f"pip cannot install {wanted} ({last[0]}). Use our recorded results."
