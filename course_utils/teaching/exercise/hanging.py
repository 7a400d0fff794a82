"""Run what may wait for ever in a thread of its own, and stop waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from course_utils.teaching.exercise.verdict import expect


def within_limits(
    seconds: float, loop: Callable[[list[Any]], Any], misconception: str, next_step: str
) -> Any:
    """Return what `loop` returns; if it takes longer than `seconds`, the attempt is wrong.

    What the loop puts into its list is dropped in its thread when all is known: to drop a generator
    may hang as well. A loop that hangs stays asleep until the kernel ends.
    """
    outcome: list[Any] = []
    ended = threading.Event()

    def run() -> None:
        keep: list[Any] = []
        try:
            outcome.append((loop(keep), None))
        except BaseException as error:
            outcome.append((None, error))
        ended.set()

    threading.Thread(target=run, daemon=True, name="check").start()
    ended.wait(seconds)
    expect(outcome, misconception, next_step)
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


@contextmanager
def quiet_threads() -> Iterator[None]:
    """Keep the tracebacks of the learner's threads from the page: the verdict says what to do."""
    before = threading.excepthook
    threading.excepthook = lambda _: None
    try:
        yield
    finally:
        threading.excepthook = before
