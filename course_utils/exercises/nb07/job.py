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

READY, HOLDS = "ready", "holds"  # what a process reports besides outcomes


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
    with suppress(BaseException):  # the call below reports this error
        importlib.import_module(stage[0])
    waiting = [gate] if gate else []
    source, place, was_opened = "", "", False

    def watch(event: str, args: tuple[Any, ...]) -> None:
        """Replace the source while it is copied, and hold the process before a rename."""
        nonlocal renewed, was_opened
        opened = str(args[0]) if event == "open" and source else ""
        was_opened = was_opened or opened == source != ""
        if renewed and was_opened and Path(place) in Path(opened).parents:
            new, renewed = renewed, ""
            os.replace(new, source)
        if event in ("os.rename", "os.link") and source and waiting:
            held = waiting.pop()
            line.send(HOLDS)
            held.wait()

    sys.addaudithook(watch)  # it receives every event that Python reports about itself
    if most:
        _limit_files(most, deadly)
    line.send(READY)
    with suppress(EOFError):
        while True:
            source, place = line.recv()
            line.send(_outcome(stage, source, place))


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


def _limit_files(size: int, deadly: bool) -> None:
    import resource  # not on Windows

    if deadly:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it and raises instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
