"""Check an exercise: right, wrong with the misconception named, or not yet attempted.

A check is a function that takes the learner's object and judges it:

    @exercise("01.1", title="Pad a batch of events")
    def pad(collate: Collate) -> Verdict:
        batch = collate(SAMPLES)
        expect("mask" in batch, "The batch has no mask.", "Return the mask beside the pulses.")
        return right("Any mixture of lengths becomes one batch.")

It lives in `course_exercises/nb01/ex1_pad.py`, and is found there by its number. What is
unwritten never reaches it, and what the learner's code raises becomes a verdict.
"""

from __future__ import annotations

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
from course_utils.teaching.notebook import Tone, advice, card, explain, find_stub, learner_line

Status = Literal["right", "wrong", "todo"]
VERDICT_MIME = "application/x-course-verdict+json"

_WORDS: dict[Status, tuple[Tone, str]] = {
    "right": ("good", "Right"),
    "wrong": ("bad", "Not right yet"),
    "todo": ("open", "Not yet attempted"),
}


@dataclass(frozen=True)
class Verdict:
    """What a check says of an attempt."""

    status: Status
    message: str
    next_step: str = ""
    exercise: str = ""
    title: str = ""

    @property
    def headline(self) -> str:
        """The verdict in a line."""
        return f"{_WORDS[self.status][1]}: exercise {self.exercise.removeprefix('0')}, {self.title}"

    def __repr__(self) -> str:
        """Say it in words."""
        return "\n".join(filter(None, (self.headline, self.message, self.next_step)))

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        html = card(_WORDS[self.status][0], self.headline, self.message, self.next_step)
        fields = {"exercise": self.exercise, "status": self.status, "message": self.message}
        return {"text/plain": repr(self), "text/html": html, VERDICT_MIME: fields}


def right(message: str) -> Verdict:
    """Return the verdict on a right attempt; `message` says what it achieves."""
    return Verdict("right", message)


def wrong(misconception: str, next_step: str) -> Verdict:
    """Return the verdict on a wrong attempt: what it takes for true, and what to do now."""
    return Verdict("wrong", misconception, next_step)


def todo(message: str = "") -> Verdict:
    """Return the verdict on an attempt that has not begun."""
    return Verdict("todo", message or "Run this cell again once you have written your answer.")


def expect(holds: object, misconception: str, next_step: str) -> None:
    """Go on if `holds`; else end the check as wrong."""
    if not holds:
        refuse(misconception, next_step)


def refuse(misconception: str, next_step: str) -> NoReturn:
    """End the check as wrong."""
    raise Refused(wrong(misconception, next_step))


def too_busy() -> NoReturn:
    """End the check without a judgement: what it started has not come to run."""
    raise Refused(
        todo(
            "The machine was too busy to judge this. Close what else runs, then run this cell "
            "again."
        )
    )


Judge = Callable[..., Verdict]
_EXERCISES: dict[str, tuple[str, Judge, float]] = {}  # title, check, seconds


def exercise(key: str, *, title: str, seconds: float = 60) -> Callable[[Judge], Judge]:
    """Register the decorated function as the check of exercise `key`, such as "01.1"."""

    def register(judge: Judge) -> Judge:
        _EXERCISES[key] = title, judge, seconds
        return judge

    return register


def check(key: str, *attempt: Any) -> Verdict:
    """Judge the learner's `attempt` at exercise `key`; whatever it does, the notebook runs on.

    Raises:
        CourseError: there is no such exercise.
    """
    modules = judge_modules()
    if key not in _EXERCISES and key in modules:
        import_module(modules[key])
    if key not in _EXERCISES:
        known = ", ".join(sorted({*modules, *_EXERCISES}))
        raise CourseError(f"There is no exercise {key!r}; choose one of: {known}.")
    title, judge, seconds = _EXERCISES[key]
    return replace(_verdict(judge, attempt, seconds), exercise=key, title=title)


def _verdict(judge: Judge, attempt: tuple[Any, ...], seconds: float) -> Verdict:
    if any(part is None for part in attempt):
        return todo("Run the cells above first; they ended with an error or were not run.")
    for part in attempt:
        if stub := find_stub(part):
            return todo(
                f"Write {stub} in place of the `...` and leave none, then run this cell again."
            )
    try:
        with _limit(seconds):
            return judge(*attempt)
    except Refused as refused:
        return refused.verdict
    except (Exception, SystemExit) as error:
        failed, mend = "The check cannot use your answer", "your answer"
        if learner_line(error):
            failed, mend = "Your code stopped", "that line"
        step = advice(error) or f"Mend {mend}, run its cell again, then this one."
        return wrong(f"{failed}: {explain(error)}.", step)


def judge_modules() -> dict[str, str]:
    """Return which module judges each exercise: "01.2" is nb01/ex2_*.py."""
    home = find_spec("course_exercises")
    folders = (home.submodule_search_locations if home else None) or ()
    paths = [path for folder in folders for path in Path(folder).glob("nb[0-9][0-9]/ex[0-9]*_*.py")]
    return {
        f"{path.parent.name[2:]}.{path.stem[2:].partition('_')[0]}": (
            f"course_exercises.{path.parent.name}.{path.stem}"
        )
        for path in paths
    }


def problem(notebook: str) -> ModuleType:
    """Return what the exercises of a notebook, such as "13", hand out."""
    return import_module(f"course_exercises.nb{notebook}.problem")


class Refused(Exception):
    """Ends a check, or one of its parts where that catches it."""

    def __init__(self, verdict: Verdict):
        self.verdict = verdict


@contextmanager
def _limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after `seconds`, where the system has alarms for that."""
    if not hasattr(signal, "setitimer") or threading.current_thread() != threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def expect_a_class(attempt: Any, what: str, why: str) -> None:
    """Refuse an object where a class is wanted, and a class that no worker could import.

    The first is told `what` it is, and `why` the check needs more.
    """
    expect(
        isinstance(attempt, type),
        f"This is {what}, not a class. The check {why}.",
        "Hand over the class itself, without parentheses.",
    )
    expect_in_a_file(attempt)


def expect_in_a_file(attempt: Any) -> None:
    """Refuse what lives only in the notebook, before a worker dies of it."""
    name = getattr(attempt, "__qualname__", type(attempt).__qualname__)
    expect(
        "<lambda>" not in name and "<locals>" not in name,
        f"A worker cannot get {name}: it imports what it needs by name, and this has none.",
        "Define it with def or class, outside of any function, in a %%worker_module cell.",
    )
    expect(
        getattr(attempt, "__module__", "") != "__main__",
        f"{name} lives in the notebook. A worker is another process: it can import a file, but it "
        "cannot see the notebook.",
        "Begin its cell with %%worker_module and a name, and run it again.",
    )
