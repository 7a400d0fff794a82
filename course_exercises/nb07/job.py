"""Run a learner's `stage` in a process of its own: watched, held up, or ended half way.

Nothing heavy is imported: on Windows each of the several processes is a new Python.
"""

import builtins
import errno
import importlib
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

_PROGRAM = "subprocess.Popen", "os.system"
_HURRY = 3600  # an hour a second


class Outcome(NamedTuple):
    """What came of a call: a path or a traceback, and how often the source was read."""

    reads: int
    returned: str = ""
    size: int = -1  # of what lies there by then
    direct: bool = False  # what was returned was opened for writing
    moved: bool = False  # the process is in another folder now
    error: str = ""


def main(
    line: Connection,
    stage: tuple[str, str],  # its module, its name
    source: str,
    place: str,
    *,
    calls: int = 1,  # before a third one the source is touched, before a fourth the copy removed
    gate: Event | None = None,  # where it waits ...
    gate_at: str = "reading",  # as soon as the source is read, or before the "renaming"
    limit: Callable[[], None] = lambda: None,  # lets files grow no further
    at_border: bool = False,  # only where a renaming would lead into another file system
    hurry: bool = False,  # its clock runs ahead, so that who waits for some minutes gives up soon
) -> None:
    """Say over the line when all is ready, when it waits, and what came of each call.

    It runs in a folder of its own, as jobs do: what they lock there, no other one sees.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in 1, 2:  # what is printed here, by programs too, would reach the notebook
        os.dup2(nowhere, stream)
    os.chdir(tempfile.mkdtemp(dir=Path(source).parent.parent))
    if hurry:
        _run_ahead()
    here = os.getcwd()
    reads, written = _watch(source, line, gate, gate_at)
    _border(place, limit)
    try:
        function = getattr(importlib.import_module(stage[0]), stage[1])
        if at_border:  # a program may be mv
            sys.addaudithook(lambda event, _: limit() if event in _PROGRAM else None)
        else:
            limit()
        line.send("ready")
        path = ""
        for call in range(calls):
            reads.clear()
            if call == 2:
                os.utime(source, (2e9, 2e9))  # in 2033: no source is as new
            if call == 3:
                os.unlink(path)
            path = os.fsdecode(function(source, place))
            size = os.path.getsize(path) if os.path.exists(path) else -1
            line.send(Outcome(len(reads), path, size, path in written, os.getcwd() != here))
    except Exception as error:
        frames = "".join(traceback.format_tb(error.__traceback__))
        said = next(iter(str(error).splitlines()), "")
        sent = f"Original Traceback\n{frames}{type(error).__name__}: {said}"  # as by a worker
        line.send(Outcome(len(reads), error=sent))


def _run_ahead() -> None:
    """Let the clocks of this process say that hours have passed, where seconds have."""
    for name in "time", "monotonic", "perf_counter":
        clock: Callable[[], float] = getattr(time, name)
        setattr(time, name, partial(_ahead, clock, clock()))


def _ahead(clock: Callable[[], float], began: float) -> float:
    return began + _HURRY * (clock() - began)


def _watch(
    source: str, line: Connection, gate: Event | None, gate_at: str
) -> tuple[list[str], list[str]]:
    """Return a list that grows when the source is read, and one of what is opened for writing."""
    reads: list[str] = []
    written: list[str] = []
    waited: list[str] = []

    def wait(where: str) -> None:
        if gate and where == gate_at and not waited:
            waited.append(where)
            line.send(where)
            gate.wait()

    def hear(event: str, args: tuple[Any, ...]) -> None:
        program = event in _PROGRAM and source in str(args[:2])
        writes = event == "open" and args[2] & (os.O_CREAT | os.O_TRUNC)
        if writes:
            written.append(str(args[0]))
        if program or (event == "open" and str(args[0]) == source and not writes):
            reads.append(event)
            wait("reading")
        if event == "os.rename":
            wait("renaming")

    sys.addaudithook(hear)  # it hears everything that Python reports about itself
    return reads, written


def _border(place: str, at_border: Callable[[], None]) -> None:
    """Refuse to rename into `place` or out of it, as to another file system; call `at_border`."""

    def guard(name: str) -> None:
        rename = getattr(os, name)

        def guarded(old: Any, new: Any, **how: Any) -> None:
            roots = {Path(place) in Path(os.path.abspath(path)).parents for path in (old, new)}
            if len(roots) > 1:
                at_border()
                said = os.strerror(errno.EXDEV)
                raise OSError(errno.EXDEV, said, os.fspath(old), None, os.fspath(new))
            rename(old, new, **how)

        setattr(os, name, guarded)

    for name in "rename", "replace", "link":
        guard(name)


def limit_files(size: int, *, deadly: bool = False) -> None:
    """Let no file grow beyond `size` bytes: writing on is an error, or the end as by SIGKILL."""
    try:
        import resource
    except ModuleNotFoundError:
        limit_open(size, deadly=deadly)
        return
    if deadly:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it and raises instead
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def limit_open(size: int, *, deadly: bool) -> None:
    """Do the same where the system knows no such limit; only what `open` returned is limited."""
    with suppress(ImportError, AttributeError):  # shutil lets Windows copy, where nobody opens
        del importlib.import_module("_winapi").CopyFile2
    real_open = builtins.open

    def limited_open(*args: Any, **kwargs: Any) -> Any:
        file = real_open(*args, **kwargs)
        if file.writable() and hasattr(file, "raw"):
            write = file.write

            def limited(data: bytes) -> int:
                fits = memoryview(data)[: max(0, size - file.tell())]
                write(fits)
                if len(fits) < len(data):
                    file.flush()
                    if deadly:
                        os._exit(1)
                    raise OSError(errno.EFBIG, "File too large")
                return len(data)

            file.write = limited
        return file

    builtins.open = limited_open
