"""Show traps of workers, before and after they are mended, in a process that may break.

    compare("threads")  # both, as a card
    show("unpicklable", mended=False, seconds=8)  # one, as it ended

Each demonstration is a function `NAME(mended) -> Numbers` in a module `worker_demos_THEME`: short
enough to read, and the two cases differ in the one thing that matters. Those whose process stays
whole can be called directly too.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from dataclasses import dataclass
from typing import Any

from course_utils.errors import CourseError
from course_utils.teaching.notebook import Demo, block, card, run_demo

Numbers = dict[str, Any]  # what a demonstration counted or measured: name -> plain value

# Where a demonstration does not hang on the start method, it takes the one that is quick.
QUICK = "fork" if sys.platform == "linux" else "spawn"

TITLES = {
    "strings": "Reading a list of strings copies it into every worker",
    "view": "A small view takes its whole storage along",
    "in_flight": "Batches on their way: workers × prefetch_factor, and one in use",
    "memory_map": "A memory map is sent to workers as all its data",
    "threads": "Every worker computes with as many threads as there are cores",
    "first_batch": "Every new worker imports torch again",
    "cache": "What a worker keeps ends with the worker",
    "objects": "Objects are pickled on their way, arrays are not",
    "straggler": "One slow sample holds up the batches behind it",
    "random_numbers": "Workers draw the same numbers, and each epoch again",
    "one_handle": "Workers read through one handle, and get rows of each other",
    "short_epoch": "A StopIteration ends the epoch early, without a word",
    "epoch_number": "Persistent workers do not see the new epoch",
    "tails": "drop_last drops the tail of every worker",
    "unpicklable": "What cannot be pickled never arrives",
    "crash": "A library crashes in a worker",
    "openmp": "A fork copies a pool without its threads",
    "class_in_notebook": "A worker cannot import a class from the notebook",
    "old_loop": "A forked worker finds the loop that failed before",
}

_THEMES = {
    "memory": "strings view in_flight memory_map",
    "speed": "threads first_batch cache objects straggler",
    "silent": "random_numbers one_handle short_epoch epoch_number tails",
    "broken": "unpicklable crash openmp class_in_notebook old_loop",
}

# What is about one start method, and says so on a system that does not have it.
_NEEDS = {
    "strings": "fork",
    "one_handle": "fork",
    "openmp": "fork",
    "old_loop": "fork",
    "first_batch": "forkserver",
}

_PROGRAM = """
import json, warnings
from course_utils.teaching.worker_demos_{theme} import {name}

if __name__ == "__main__":
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    numbers = json.dumps({name}(mended={mended}))
    print("\\n" + {mark!r} + numbers)  # what dies may leave half a line
"""
_MARK = "numbers: "


@dataclass(frozen=True)
class Run:
    """How one case went."""

    demo: Demo
    numbers: Numbers  # empty: it did not come to its end
    printed: str  # what it printed besides


@dataclass(frozen=True)
class Comparison:
    """A trap, and the same mended."""

    title: str
    before: Run
    after: Run

    def __repr__(self) -> str:
        """Say it in words."""
        return "\n".join([self.title, *self._lines()])

    def _repr_html_(self) -> str:
        printed = self.before.printed
        return card("plain", self.title, *self._lines(), body=block(printed) if printed else "")

    def _lines(self) -> list[str]:
        return [f"Before: {_words(self.before)}", f"After: {_words(self.after)}"]


def compare(name: str, *, seconds: float = 20, memory_mb: float = 4000) -> Comparison:
    """Run a demonstration twice, as people write it and mended, each in a process of its own.

    Args:
        name: one of `TITLES`.
        seconds: a case is stopped after so long; to hang is what some are about.
        memory_mb: it is stopped once it holds more.
    """
    runs = (show(name, mended=m, seconds=seconds, memory_mb=memory_mb) for m in (False, True))
    return Comparison(TITLES[name], *runs)


def show(name: str, *, mended: bool, seconds: float = 20, memory_mb: float = 4000) -> Run:
    """Run one case of a demonstration in a process of its own; the same arguments as `compare`."""
    theme = next((theme for theme, names in _THEMES.items() if name in names.split()), None)
    if theme is None:
        raise CourseError(f"There is no demonstration {name!r}; take one of: {', '.join(TITLES)}.")
    method = _NEEDS.get(name)
    if method and method not in multiprocessing.get_all_start_methods():
        ending = f"Not shown: it is about {method}, which this system does not have"
        return Run(Demo(ending, 0, 0.0, 0.0, ""), {}, "")
    program = _PROGRAM.format(theme=theme, name=name, mended=mended, mark=_MARK)
    demo = run_demo(program, seconds=seconds, memory_mb=memory_mb)
    lines = demo.output.splitlines()
    said = [line.removeprefix(_MARK) for line in lines if line.startswith(_MARK)]
    printed = "\n".join(line for line in lines if not line.startswith(_MARK)).strip("\n\0")
    return Run(demo, json.loads(said[-1]) if said else {}, printed)


def _words(run: Run) -> str:
    if not run.numbers:
        return run.demo.sentence
    return ", ".join(f"{name} {value}" for name, value in run.numbers.items())
