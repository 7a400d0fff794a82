"""Run the faulty and the fixed program of an entry, each in a process that may break."""

import multiprocessing
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache

import torch

from course_utils.errors import CourseError
from course_utils.hardware.machine import usable_cores
from course_utils.stories.field_guide.cards import EntryRun
from course_utils.teaching.notebook import run_demo
from keepfed.field_guide import Entry, entries

# fast start method for entries that work with any
_FAST_METHOD = "fork" if sys.platform == "linux" else "spawn"
_MEMORY_MB = 4000


def show(name: str) -> EntryRun:
    """Run the faulty and the fixed program of an entry, or report why this machine cannot.

    Raises:
        CourseError: If the entry does not exist.
    """
    if name not in entries():
        raise CourseError(f"There is no entry {name!r}. Choose one of: {', '.join(entries())}.")
    entry = entries()[name]
    if why := missing_requirement(entry):
        return EntryRun(entry, f"Not run here: {why}.", "")
    return EntryRun(entry, _run(entry, entry.faulty), _run(entry, entry.fixed))


def missing_requirement(entry: Entry) -> str:
    """Return why this machine cannot run an entry, or ""."""
    if not entry.program:
        return f"there is no program, because {entry.no_program}"
    if entry.method and entry.method not in multiprocessing.get_all_start_methods():
        return f"it needs {entry.method}, which this system does not have"
    is_met: dict[str, Callable[[], bool]] = {
        "": lambda: True,
        "a GPU": torch.cuda.is_available,
        "a machine without a GPU": lambda: not torch.accelerator.is_available(),
        "Linux": lambda: sys.platform == "linux",
        "two cores": lambda: usable_cores() > 1,
        "a private /dev/shm": _may_mount,
        "Python 3.12": lambda: sys.version_info >= (3, 12),
    }
    return "" if is_met[entry.needs]() else f"it needs {entry.needs}"


@cache
def _may_mount() -> bool:
    """Return whether a user may create a private mount on this system."""
    if not shutil.which("unshare"):
        return False
    tried = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def _run(entry: Entry, program: str) -> str:
    method = entry.method or _FAST_METHOD
    start = f"import multiprocessing; multiprocessing.set_start_method({method!r}, force=True); "
    demo = run_demo(start + program, seconds=entry.seconds, memory_mb=_MEMORY_MB)
    return f"{demo.output}\n[{demo.ending}]".strip()
