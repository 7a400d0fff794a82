"""The report names a loop by the line of the program, or else of the library that loops."""

from __future__ import annotations

import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import keepfed
from keepfed.measure.stacks import is_own
from keepfed.measure.watch.timing.writer import call_sites

LIBRARY = """
def passed_on(batches):
    yield from batches
def fit(batches):
    for batch in passed_on(batches):
        return batch
"""
HERE = {"__name__": "keepfed.here", "call_sites": call_sites, "sys": sys}


def test_loop_that_a_console_script_starts_is_named_by_the_line_of_the_library() -> None:
    names: dict[str, Any] = {}
    library = Path(sysconfig.get_path("purelib"), "library", "trainer.py")
    exec(compile(LIBRARY, str(library), "exec"), names)
    for script, expected in (
        (Path(sysconfig.get_path("scripts"), "yolo"), ("trainer.py:5", "trainer.py:5")),
        (Path("home", "train.py"), ("train.py:1", "trainer.py:3")),
    ):
        batches = eval("iter(lambda: call_sites(sys._getframe()), None)", HERE)
        sites: list[tuple[str, str]] = []
        code = compile("sites.append(fit(batches))", str(script), "exec")
        # in a thread, which no line of this file calls
        options = code, {**names, "batches": batches, "sites": sites}
        thread = threading.Thread(target=exec, args=options)
        thread.start()
        thread.join()
        assert sites == [expected]


def test_a_program_beside_the_package_is_not_part_of_it() -> None:
    package = Path(keepfed.__file__).parent
    assert is_own(f"{package}_train/train.py")
    assert not is_own(f"{package}/measure/trace.py")
