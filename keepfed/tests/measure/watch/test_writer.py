"""The report names a loop by the line of the program, or else of the library that loops."""

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
def __call__(batches):
    for batch in passed_on(batches):
        return batch
"""
HERE = {"__name__": "keepfed.here", "call_sites": call_sites, "sys": sys}
BATCHES = eval("iter(lambda: call_sites(sys._getframe()), None)", HERE)
LOOP = "sites.append(__call__(batches))"


def test_loop_is_named_by_the_line_that_iterates_not_by_a_generator_in_between() -> None:
    library, program = Path(sysconfig.get_path("purelib"), "library", "trainer.py"), "train.py"
    names: dict[str, Any] = {"batches": BATCHES, "sites": []}
    exec(compile(LIBRARY, str(library), "exec"), names)
    for file, source, expected in (
        (Path(sysconfig.get_path("scripts"), "yolo"), LOOP, ("trainer.py:5", "trainer.py:5")),
        (program, LOOP, ("train.py:1", "trainer.py:5")),
        (program, LIBRARY + LOOP, ("train.py:5", "train.py:3")),
        (library, LIBRARY + LOOP, ("trainer.py:5", "trainer.py:5")),
    ):
        # in a thread, which no line of this file calls
        thread = threading.Thread(target=exec, args=(compile(source, str(file), "exec"), names))
        thread.start()
        thread.join()
        assert names["sites"].pop() == expected


def test_a_program_beside_the_package_is_not_part_of_it() -> None:
    package, scripts = Path(keepfed.__file__).parent, sysconfig.get_path("scripts")
    assert is_own(f"{package}_train/train.py")
    assert not any(map(is_own, (f"{package}/measure/trace.py", f"{scripts}/yolo")))
