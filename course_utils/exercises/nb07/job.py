"""Run a learner's `stage` in a process of its own, which may be held or killed.

It imports no large package, because with spawn each of these processes is a new Python.
"""

import importlib
import os
import signal
import sys
import tempfile
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from filelock import BaseFileLock

READY, READS, HOLDS = "ready", "reads", "holds"  # what a process reports besides outcomes
LONGEST_COPY_S = 600.0  # a lock that waits less gives up while another job copies
_PROGRAMS = "subprocess.Popen", "os.system"


class Outcome(NamedTuple):
    """Result of a call: what it returned, or its traceback."""

    returned: str = ""
    error: str = ""


def main(
    line: Connection,
    stage: tuple[str, str],
    folder: str,
    *,
    most: int = 0,
    deadly: bool = False,
    gate: Event | None = None,
    renewed: str = "",
) -> None:
    """Call `stage` with each pair of arguments that arrives, until the line is closed.

    Args:
        line: Receives sources and places, and sends reports and outcomes.
        stage: Module and name of the learner's function.
        folder: Working directory, which is also the folder for temporary files.
        most: Bytes that a file may have. More are an error, or if `deadly`, kill the process.
        deadly: See `most`.
        gate: Event to wait for before a rename.
        renewed: File that replaces the source after a job has opened it.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for stream in 1, 2:  # output would appear in the notebook, even that of programs
        os.dup2(null, stream)
    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder  # for programs, and for Python
    _shorten_timeouts()
    with suppress(BaseException):  # the call below reports this error
        importlib.import_module(stage[0])
    watch = _Watch(line, gate, renewed)
    sys.addaudithook(watch)  # it receives every event that Python reports about itself
    if most:
        _limit_files(most, deadly)
    line.send(READY)
    with suppress(EOFError):
        while True:
            watch.source, watch.place = line.recv()
            line.send(_outcome(stage, watch.source, watch.place))


def _outcome(stage: tuple[str, str], source: str, place: str) -> Outcome:
    try:
        path = getattr(importlib.import_module(stage[0]), stage[1])(source, place)
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"stage returned {path!r:.40}, not the path of the copy")
    except BaseException as error:
        frames = "".join(traceback.format_tb(error.__traceback__))
        first_line = next(iter(str(error).splitlines()), "")
        # in the form in which a DataLoader sends the error of a worker
        kind = type(error).__name__
        return Outcome(error=f"Original Traceback\n{frames}{kind}: {first_line}")
    return Outcome(os.fspath(path))


class _Watch:
    """Reports when the source is opened, and holds the process before a rename."""

    source = place = ""

    def __init__(self, line: Connection, gate: Event | None, renewed: str):
        self._line, self._gate, self._renewed, self._opened = line, gate, renewed, False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an event of Python's."""
        if not self.source:
            return
        command = str(args[:2]) if event in _PROGRAMS else ""
        opens = str(args[0]) if event == "open" else ""
        if opens == self.source or self.source in command:
            self._opened = True
            self._line.send(READS)
        elif self._renewed and self._opened and Path(self.place) in Path(opens).parents:
            renewed, self._renewed = self._renewed, ""
            os.replace(renewed, self.source)
        if self._gate and (event in ("os.rename", "os.link") or self.place in command):
            gate, self._gate = self._gate, None
            self._line.send(HOLDS)
            gate.wait()


def _shorten_timeouts() -> None:
    """Let locks that would give up during a long copy give up soon, so that nobody waits here."""
    acquire = BaseFileLock.acquire

    def acquire_soon(lock: BaseFileLock, timeout: float | None = None, **how: Any) -> Any:
        seconds = lock.timeout if timeout is None else timeout  # if negative, it never gives up
        return acquire(lock, 0.2 if 0 < seconds < LONGEST_COPY_S else seconds, **how)

    BaseFileLock.acquire = acquire_soon  # type: ignore[method-assign, assignment]


def _limit_files(size: int, deadly: bool) -> None:
    import resource  # not on Windows

    if deadly:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it and raises instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
