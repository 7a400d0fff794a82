"""The programs of the field guide: each prints its message, and works after the fix."""

import multiprocessing
import re
import shutil
import subprocess
import sys
from functools import cache

import pytest
import torch

from course_utils.hardware.machine import usable_cores
from course_utils.teaching.notebook import run_demo
from keepfed.field_guide import ANY, Entry, answer, entries

QUICK = {"unequal_shapes", "duplicate_samples"}
# programs that show another effect than the messages of their entries
SILENT = {"threads", "shared_file_handle", "padded_ranks", "slow_start"}
MEMORY_MB = 4000


@cache
def may_mount() -> bool:
    """Return whether a user may create a private mount on this system."""
    if not shutil.which("unshare"):
        return False
    return not subprocess.run(["unshare", "-Urm", "true"], capture_output=True).returncode


def can_run(entry: Entry) -> bool:
    is_met = {
        "": True,
        "a GPU": torch.cuda.is_available(),
        "a machine without a GPU": not torch.accelerator.is_available(),
        "Linux": sys.platform == "linux",
        "two cores": usable_cores() > 1,
        "a private /dev/shm": may_mount(),
        "Python 3.12": sys.version_info >= (3, 12),
    }
    methods = ["", *multiprocessing.get_all_start_methods()]
    return bool(entry.program) and entry.method in methods and is_met[entry.needs]


def output(entry: Entry, program: str) -> str:
    method = entry.method or ("fork" if sys.platform == "linux" else "spawn")
    start = f"import multiprocessing; multiprocessing.set_start_method({method!r}, force=True); "
    demo = run_demo(start + program, seconds=entry.seconds, memory_mb=MEMORY_MB)
    return f"{demo.output}\n[{demo.ending}]".strip()


def says(text: str, pattern: str) -> bool:
    parts = map(re.escape, pattern.split(ANY))
    return re.search(".*".join(parts), " ".join(text.split())) is not None


def assert_as_told(entry: Entry) -> None:
    """Fail unless the faulty program of an entry prints its message, and the fixed one does not."""
    if not can_run(entry):
        return
    before, after = output(entry, entry.without("+")), output(entry, entry.without("-"))
    assert says(before, entry.prints), before
    assert says(after, entry.prints_fixed), after
    if entry.name != "crash":  # its fixed program still crashes, with a traceback
        assert not says(after, entry.prints), after
    if entry.messages and entry.name not in SILENT:
        assert entry in (*answer(before).entries, *answer(before).near)


@pytest.mark.slow
def test_faulty_program_prints_message_and_fixed_one_does_not() -> None:
    for name in QUICK:
        assert_as_told(entries()[name])


@pytest.mark.full
@pytest.mark.parametrize("name", sorted({*entries()} - QUICK))
def test_each_program_prints_message_only_before_the_fix(name: str) -> None:
    assert_as_told(entries()[name])
