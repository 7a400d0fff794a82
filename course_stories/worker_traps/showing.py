"""Show traps of workers, before and after they are mended, in a process that may break.

`compare("threads")` shows both cases as a card, `show("unpicklable", mended=False, seconds=8)` one
of them as it ended.
"""

import json
import multiprocessing
from dataclasses import dataclass

from course_stories.worker_traps import traps
from course_stories.worker_traps.traps import TRAPS, Numbers
from course_utils.teaching.notebook import Demo, block, card, run_demo

_MARK = "numbers: "
_MEMORY_MB = 4000  # a case is stopped once it holds more
_PROGRAM = """
import json, warnings
from {module} import {name}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    numbers = json.dumps({name}(mended={mended}))
    print("\\n" + {mark!r} + numbers)  # what dies may leave half a line
"""


@dataclass(frozen=True)
class TrapRun:
    """How one case went."""

    demo: Demo
    numbers: Numbers  # empty: it did not come to its end
    printed: str  # what it printed besides

    def __str__(self) -> str:
        """Say its numbers, or else how it ended."""
        found = ", ".join(f"{name} {value}" for name, value in self.numbers.items())
        return found or self.demo.sentence


@dataclass(frozen=True)
class TrapComparison:
    """A trap, and the same mended."""

    title: str
    before: TrapRun
    after: TrapRun

    def _repr_html_(self) -> str:
        said, body = self.before.printed, [f"Before: {self.before}", f"After: {self.after}"]
        return card("plain", self.title, *body, body=block(said) if said else "")


def compare(name: str, *, seconds: float = 20) -> TrapComparison:
    """Run a demonstration twice, as people write it and mended, each in a process of its own.

    Args:
        name: one of `TRAPS`.
        seconds: a case is stopped after so long; to hang is what some are about.
    """
    before, after = (show(name, mended=mended, seconds=seconds) for mended in (False, True))
    return TrapComparison(TRAPS[name].title, before, after)


def show(name: str, *, mended: bool, seconds: float = 20) -> TrapRun:
    """Run one case of a demonstration in a process of its own; the same arguments as `compare`."""
    method = TRAPS[name].needs
    if method and method not in multiprocessing.get_all_start_methods():
        ending = f"Not shown: it is about {method}, which this system does not have"
        return TrapRun(Demo(ending, 0, 0.0, 0.0, ""), {}, "")
    program = _PROGRAM.format(module=traps.__name__, name=name, mended=mended, mark=_MARK)
    demo = run_demo(program, seconds=seconds, memory_mb=_MEMORY_MB)
    lines = demo.output.splitlines()
    said = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    printed = "\n".join(line for line in lines if not line.startswith(_MARK)).strip("\n\0")
    return TrapRun(demo, json.loads(said[-1]) if said else {}, printed)
