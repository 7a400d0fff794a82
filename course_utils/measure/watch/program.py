"""Run a program with all its Python processes watched, and say at its end what was found."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import Any

from course_utils.errors import CourseError
from course_utils.measure.watch.attach import prepare
from course_utils.measure.watch.record import PROCESS, Seen, Totals, read_all
from course_utils.words import duration, percent, plural

OFTEN_S, SELDOM_S = 1.0, 10.0  # between two lines of `--live`, on a terminal and elsewhere


def run_watched(program: Sequence[str], out: Path, *, live: bool = False) -> int:
    """Run `program`, write what was found to `out` and to stderr; return its exit code.

    Args:
        program: a command and its arguments; a file that ends in .py is run by this Python.
        out: the folder of the page and the trace; it is made if there is something to write.
        live: show a line meanwhile.

    Raises:
        CourseError: there is no such program.
    """
    words = [sys.executable, *program] if program[0].endswith(".py") else list(program)
    with tempfile.TemporaryDirectory(prefix="course-watch-") as name:
        folder = Path(name)
        code = _run(words, prepare(folder), Live(folder) if live else None)
        print(f"\n{_told(folder, out, join(program))}", file=sys.stderr)
    return code


def _run(words: Sequence[str], environment: dict[str, str], live: Live | None) -> int:
    """Run the program to its end, whatever ends it; return its exit code as a shell says it."""
    try:
        child = subprocess.Popen(words, env=environment)
    except OSError as error:
        raise CourseError(
            f"{words[0]} cannot be run ({error.strerror}); name a program as you would without "
            "`course watch`, such as `course watch python train.py`."
        ) from None
    with _left_to(child):
        while True:
            try:
                code = child.wait(live.pause_s if live else None)
                break
            except subprocess.TimeoutExpired:
                if live:
                    live.show()
    if live:
        live.end()
    return code if code >= 0 else 128 - code


@contextmanager
def _left_to(child: subprocess.Popen[Any]) -> Iterator[None]:
    """Leave Ctrl-C, which reaches the child too, to the child; pass SIGTERM and SIGHUP on to it."""
    handlers: dict[int, Any] = {signal.SIGINT: lambda number, frame: None}
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            handlers[getattr(signal, name)] = lambda number, frame: child.send_signal(number)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(folder: Path, out: Path, command: str) -> str:
    seen = read_all(folder)
    if not seen and not any(folder.glob(f"*{PROCESS}")):
        return (
            "course watch: no Python process with torch was seen. One that runs with -I, -E or -S, "
            "in a container or on another machine is not: put `course watch` in front of it there."
        )
    from course_utils.measure.watch.report import write  # torch, when the program no longer runs

    return write(seen, out, command)


class Live:
    """One line on stderr that says how the program is doing."""

    def __init__(self, folder: Path):
        self._folder, self._before = folder, dict[tuple[int, str], Totals]()
        self._terminal = sys.stderr.isatty()
        self.pause_s = OFTEN_S if self._terminal else SELDOM_S

    def show(self) -> None:
        """Show what happened since the last line."""
        now = {(one.about["pid"], one.about["at"]): one for one in read_all(self._folder)}
        parts = [part for key, one in now.items() if (part := self._part(key, one))]
        self._before = {key: one.totals for key, one in now.items()}
        line = f"{time.strftime('%H:%M:%S')} {'; '.join(parts) or 'no batch was taken'}"
        if self._terminal:
            print(
                f"\r\x1b[2K{line[: shutil.get_terminal_size().columns - 1]}",
                end="",
                file=sys.stderr,
                flush=True,
            )
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._terminal:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)

    def _part(self, key: tuple[int, str], one: Seen) -> str:
        before, now = self._before.get(key, Totals()), one.totals
        turns, waited = now.turns - before.turns, now.waited - before.waited
        if not turns:
            return ""
        lasted = waited + now.worked - before.worked
        rank = f"rank {one.rank} " if one.about["ranks"] > 1 else ""
        return (
            f"{rank}{one.about['at']}: {plural(int(now.turns), 'batch')}, "
            f"{duration(lasted / turns)} each, {percent(waited / max(lasted, 1.0))} waiting"
        )
