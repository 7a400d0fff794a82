"""Check an exercise: right, wrong with a named misconception, or not yet attempted.

A check is a function that receives the learner's object and grades it:

    @exercise("01.1", title="Pad a batch of events")
    def pad(collate: Collate) -> Verdict:
        batch = collate(SAMPLES)
        expect("mask" in batch, "The batch has no mask.", "Return it with the pulses.")
        return right("Any mixture of lengths becomes one batch.")

It is in `course_utils/exercises/nb01/ex1_pad.py`, and its number finds it there. The check is not
called for an unwritten answer, and an exception in the learner's code becomes a verdict.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal, NoReturn

from course_utils.errors import CourseError
from course_utils.teaching.notebook import (
    Tone,
    advice,
    card,
    explain,
    failed_name,
    find_stub,
    learner_line,
)

Status = Literal["right", "wrong", "todo"]
VERDICT_MIME = "application/x-course-verdict+json"
_VALUE = re.compile(r"`[^`]*`|'[^']*'|\"[^\"]*\"|[-+]?\d[\w.,]*(?<![.,])")  # in a message

_WORDS: dict[Status, tuple[Tone, str]] = {
    "right": ("good", "Right"),
    "wrong": ("bad", "Not right yet"),
    "todo": ("open", "Not yet attempted"),
}


@dataclass(frozen=True)
class Verdict:
    """Result of checking an attempt."""

    status: Status
    message: str
    next_step: str = ""
    exercise: str = ""
    title: str = ""
    is_error: bool = False  # the answer raised an exception

    @property
    def summary_for_class(self) -> dict[str, str]:
        """The status, and the kind of mistake without the learner's values and code."""
        slip = _VALUE.sub("…", self.message.partition(". ")[0]) if self.status == "wrong" else ""
        return {"status": self.status, "slip": "An error in the code" if self.is_error else slip}

    @property
    def headline(self) -> str:
        """The verdict in one line."""
        return f"{_WORDS[self.status][1]}: exercise {self.exercise.removeprefix('0')}, {self.title}"

    def __repr__(self) -> str:
        """Return the verdict as text."""
        return "\n".join(filter(None, (self.headline, self.message, self.next_step)))

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        html = card(_WORDS[self.status][0], self.headline, self.message, self.next_step)
        fields = {"exercise": self.exercise, "status": self.status, "message": self.message}
        return {"text/plain": repr(self), "text/html": html, VERDICT_MIME: fields}


def right(message: str) -> Verdict:
    """Return the verdict for a right attempt; `message` states what the attempt achieves."""
    return Verdict("right", message)


def wrong(misconception: str, next_step: str) -> Verdict:
    """Return the verdict for a wrong attempt: the misconception, and the next step."""
    return Verdict("wrong", misconception, next_step)


def todo(message: str = "") -> Verdict:
    """Return the verdict for an attempt that was not started."""
    return Verdict("todo", message or "Run this cell again once you have written your answer.")


def expect(holds: object, misconception: str, next_step: str) -> None:
    """Continue if `holds` is true, otherwise end the check as wrong."""
    if not holds:
        refuse(misconception, next_step)


def refuse(misconception: str, next_step: str) -> NoReturn:
    """End the check as wrong."""
    raise Refused(wrong(misconception, next_step))


def too_busy() -> NoReturn:
    """End the check without a grade, because its processes did not get enough CPU time."""
    raise Refused(
        todo(
            "The machine was too busy to check this. Close other programs, then run this cell "
            "again."
        )
    )


_AGAIN_S = 1.0  # between two alarms, because an answer may catch the first one
Judge = Callable[..., Verdict]
_EXERCISES: dict[str, tuple[str, Judge, float]] = {}  # title, check, seconds


def exercise(key: str, *, title: str, seconds: float = 60) -> Callable[[Judge], Judge]:
    """Register the decorated function as the check of exercise `key`, such as "01.1"."""

    def register(judge: Judge) -> Judge:
        _EXERCISES[key] = title, judge, seconds
        return judge

    return register


def check(key: str, *attempt: Any) -> Verdict:
    """Check the learner's `attempt` at exercise `key`. An error in it never stops the notebook.

    Raises:
        CourseError: If there is no such exercise.
    """
    modules = judge_modules()
    if key not in _EXERCISES and key in modules:
        import_module(modules[key])
    if key not in _EXERCISES:
        known = ", ".join(sorted({*modules, *_EXERCISES}))
        raise CourseError(f"There is no exercise {key!r}. Choose one of: {known}.")
    title, judge, seconds = _EXERCISES[key]
    return replace(_verdict(judge, attempt, seconds), exercise=key, title=title)


def _verdict(judge: Judge, attempt: tuple[Any, ...], seconds: float) -> Verdict:
    for part in attempt:
        if name := failed_name(part):
            return wrong(
                f"The cell that defines {name} ended with an error, so the check would judge an "
                "older version.",
                "Fix that cell and run it again, then this one.",
            )
        if stub := find_stub(part):
            return todo(f"Write {stub}: replace every `...`, then run this cell again.")
    try:
        with _limit(seconds):
            return judge(*attempt)
    except Refused as refused:
        return refused.verdict
    except (Exception, SystemExit) as error:
        failed, part = "The check cannot use your answer", "your answer"
        if learner_line(error):
            failed, part = "Your code stopped", "that line"
        step = advice(error) or f"Fix {part}, run its cell again, then this one."
        return replace(wrong(f"{failed}: {explain(error)}.", step), is_error=True)


def judge_modules() -> dict[str, str]:
    """Return the module that checks each exercise: "01.2" is in nb01/ex2_*.py."""
    home = find_spec("course_utils.exercises")
    folders = (home.submodule_search_locations if home else None) or ()
    paths = [path for folder in folders for path in Path(folder).glob("nb[0-9][0-9]/ex[0-9]*_*.py")]
    return {
        f"{path.parent.name[2:]}.{path.stem[2:].partition('_')[0]}": (
            f"course_utils.exercises.{path.parent.name}.{path.stem}"
        )
        for path in paths
    }


def problem(notebook: str) -> ModuleType:
    """Return the module with the given code of a notebook's exercises, such as "13"."""
    return import_module(f"course_utils.exercises.nb{notebook}.problem")


class Refused(Exception):
    """Raised to end a check, or a part of a check that catches it."""

    def __init__(self, verdict: Verdict):
        self.verdict = verdict


class _OutOfTime(BaseException):
    """Raised at the limit. It is no Exception, so a probe cannot take it for an error."""


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after `seconds`, even if the answer catches all errors.

    Without alarms, as on Windows or in another thread, the learner interrupts the cell.
    """
    if threading.current_thread() != threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    except _OutOfTime as late:
        text = f"it took longer than {seconds:g} s"
        raise TimeoutError(text).with_traceback(late.__traceback__) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def expect_a_class(attempt: Any, what: str, why: str) -> None:
    """Reject an object that is not a class, and a class that workers cannot import.

    The message for the first names `what` the object is, and `why` the check needs a class.
    """
    expect(
        isinstance(attempt, type),
        f"This is {what}, not a class. The check {why}.",
        "Pass the class itself, without parentheses.",
    )
    expect_in_a_file(attempt)


def expect_in_a_file(attempt: Any) -> None:
    """Reject an object that exists only in the notebook, where workers cannot import it."""
    name = getattr(attempt, "__qualname__", type(attempt).__qualname__)
    expect(
        "<lambda>" not in name and "<locals>" not in name,
        f"A worker cannot import {name}, because it is a lambda or is defined inside a function.",
        "Define it with def or class, outside any function, in a %%worker_module cell.",
    )
    expect(
        getattr(attempt, "__module__", "") != "__main__",
        f"{name} is defined in the notebook. A worker is a separate process. It can import a file, "
        "but not a notebook.",
        "Start its cell with %%worker_module and a name, and run it again.",
    )
