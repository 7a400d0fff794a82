"""Run a learner's `stage` in a process of its own, which may be held, interrupted or killed.

It imports no large package, because with spawn each of these processes is a new Python.
"""

import importlib
import os
import signal
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

READY, READS, HOLDS = "ready", "reads", "holds"  # what a process reports besides outcomes
_PROGRAMS = "subprocess.Popen", "os.system"


class Outcome(NamedTuple):
    """Result of a call: what it returned, or its traceback."""

    returned: str = ""
    moved: bool = False  # whether the working directory changed
    error: str = ""


def main(
    line: Connection,
    stage: tuple[str, str],
    folder: str,
    *,
    most: int = 0,
    deadly: bool = False,
    gate: Event | None = None,
    interrupt: bool = False,
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
        interrupt: Raise KeyboardInterrupt before a rename, as Ctrl-C does.
        renewed: File that replaces the source after a job has opened it.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for stream in 1, 2:  # output would appear in the notebook, even that of programs
        os.dup2(null, stream)
    os.chdir(folder)
    here = os.getcwd()
    os.environ["TMPDIR"] = folder
    watch = _Watch(line, gate, interrupt, renewed)
    try:
        function = getattr(importlib.import_module(stage[0]), stage[1])
    except BaseException as error:
        line.send(READY)
        line.send(_failed(error))
        return
    sys.addaudithook(watch)  # it receives every event that Python reports about itself
    if most:
        _limit_files(most, deadly)
    line.send(READY)
    with suppress(EOFError):
        while True:
            watch.source, watch.place = line.recv()
            try:
                path = function(watch.source, watch.place)
                if not isinstance(path, str | os.PathLike):
                    raise TypeError(f"stage returned {path!r:.40}, not the path of the copy")
                line.send(Outcome(os.fspath(path), moved=os.getcwd() != here))
            except BaseException as error:
                line.send(_failed(error))


def _failed(error: BaseException) -> Outcome:
    frames = "".join(traceback.format_tb(error.__traceback__))
    first_line = next(iter(str(error).splitlines()), "")
    # in the form in which a DataLoader sends the error of a worker
    kind = type(error).__name__
    return Outcome(error=f"Original Traceback\n{frames}{kind}: {first_line}")


class _Watch:
    """Reports when the source is opened, and holds the process before a rename."""

    source = place = ""

    def __init__(self, line: Connection, gate: Event | None, interrupt: bool, renewed: str):
        self._line, self._gate, self._interrupt = line, gate, interrupt
        self._renewed, self._opened = renewed, False

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
        if event in ("os.rename", "os.link") or self.place in command:
            gate, self._gate = self._gate, None
            if gate:
                self._line.send(HOLDS)
                gate.wait()
            if self._interrupt:
                raise KeyboardInterrupt


def _limit_files(size: int, deadly: bool) -> None:
    import resource  # not on Windows

    if deadly:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it and raises instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
