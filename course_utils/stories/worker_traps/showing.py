"""Show common faults with workers, and their fixes, in a subprocess that may crash.

`compare("threads")` shows both cases as a card. `show("unpicklable", fixed=False, seconds=8)`
returns the result of one case.
"""

import json
import multiprocessing
from dataclasses import dataclass

from course_utils.stories.worker_traps import traps
from course_utils.stories.worker_traps.traps import TRAPS, Numbers
from course_utils.teaching.notebook import Demo, block, card, run_demo

_MARK = "numbers: "
_MEMORY_MB = 4000  # memory limit of a case
_PROGRAM = """
import json, warnings
from {module} import {name}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    numbers = json.dumps({name}(fixed={fixed}))
    print("\\n" + {mark!r} + numbers)  # a crash may leave half a line
"""


@dataclass(frozen=True)
class TrapRun:
    """The result of one case."""

    demo: Demo
    numbers: Numbers  # empty if the case did not finish
    printed: str  # other output

    def __str__(self) -> str:
        """Return the numbers, or a sentence about the end of the process."""
        found = ", ".join(f"{name} {value}" for name, value in self.numbers.items())
        return found or self.demo.sentence


@dataclass(frozen=True)
class TrapComparison:
    """The results of a fault before and after the fix."""

    title: str
    before: TrapRun
    after: TrapRun

    def _repr_html_(self) -> str:
        said, body = self.before.printed, [f"Before: {self.before}", f"After: {self.after}"]
        return card("plain", self.title, *body, body=block(said) if said else "")


def compare(name: str, *, seconds: float = 20) -> TrapComparison:
    """Run a demonstration without and with the fix, each in a subprocess.

    Args:
        name: a key of `TRAPS`.
        seconds: time limit of a case, as some cases hang.
    """
    before, after = (show(name, fixed=fixed, seconds=seconds) for fixed in (False, True))
    return TrapComparison(TRAPS[name].title, before, after)


def show(name: str, *, fixed: bool, seconds: float = 20) -> TrapRun:
    """Run one case of a demonstration in a subprocess, with the arguments of `compare`."""
    method = TRAPS[name].needs
    if method and method not in multiprocessing.get_all_start_methods():
        ending = f"Not shown, because it needs {method}, which this system does not have"
        return TrapRun(Demo(ending, 0, 0.0, 0.0, ""), {}, "")
    program = _PROGRAM.format(module=traps.__name__, name=name, fixed=fixed, mark=_MARK)
    demo = run_demo(program, seconds=seconds, memory_mb=_MEMORY_MB)
    lines = demo.output.splitlines()
    said = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    printed = "\n".join(line for line in lines if not line.startswith(_MARK)).strip("\n\0")
    return TrapRun(demo, json.loads(said[-1]) if said else {}, printed)
