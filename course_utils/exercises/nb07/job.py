"""Run a learner's `stage` in a separate process: watched, blocked, interrupted or killed.

It imports no large package, because on Windows each of these processes is a new Python.
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
_HURRY = 3600  # speed of the clocks


class Outcome(NamedTuple):
    """Result of a call: a path or a traceback, and what it did on the way."""

    reads: int  # times that the source was opened
    returned: str = ""
    data: bytes | None = None  # contents of the returned path when the call ended
    direct: bool = False  # whether the returned path was opened for writing
    renamed: tuple[str, ...] = ()  # paths that were renamed or linked
    moved: bool = False  # whether the working directory changed
    error: str = ""


def main(
    line: Connection,
    stage: tuple[str, str],
    source: str,
    place: str,
    *,
    calls: tuple[str, ...] = ("",),
    later: bytes = b"",
    change_at_stat: bool = False,
    gate: Event | None = None,
    gate_at: str = "reading",
    limit: Callable[[], None] = lambda: None,
    at_border: bool = False,
    interrupt: bool = False,
    hurry: bool = False,
) -> None:
    """Report when everything is ready, when the job waits, and the outcome of each call.

    The process has its own working directory, like a job, so relative lock paths are not shared.

    Args:
        line: Connection for the reports.
        stage: Module and name of the learner's function, called with `source` and `place`.
        source: File to stage.
        place: Folder to stage it in.
        calls: What to do before each call: "change" the source, "remove" the copy, or nothing.
        later: Contents for "change", or if `change_at_stat` changes the source after its reading.
        change_at_stat: Change the source if its time is read after its contents.
        gate: Event to wait for, before "reading" the source or before "renaming" (`gate_at`).
        gate_at: See `gate`.
        limit: Limits the size of files, from the start or only `at_border`.
        at_border: Apply the limit where a rename would leave its file system.
        interrupt: Raise KeyboardInterrupt before a rename, or before a program starts.
        hurry: Let the clocks run ahead, so a job that gives up after minutes does so soon.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for stream in 1, 2:  # output would appear in the notebook, even that of programs
        os.dup2(null, stream)
    os.chdir(tempfile.mkdtemp(dir=Path(source).parent.parent))
    if hurry:
        _run_ahead()
    here = os.getcwd()
    reads, written, renamed = _watch(source, line, gate, gate_at, interrupt)
    _border(place, limit)
    if change_at_stat:
        _change_at_stat(source, later, reads)
    try:
        function = getattr(importlib.import_module(stage[0]), stage[1])
        if at_border:  # a program may be mv
            sys.addaudithook(lambda event, _: limit() if event in _PROGRAM else None)
        else:
            limit()
        line.send("ready")
        path = ""
        for before in calls:
            reads.clear()
            if before == "change":
                _rewrite(source, later)
            if before == "remove":
                os.unlink(path)
            path = os.fsdecode(function(source, place))
            data = Path(path).read_bytes() if os.path.isfile(path) else None
            moved = os.getcwd() != here
            line.send(Outcome(len(reads), path, data, path in written, tuple(renamed), moved))
    except BaseException as error:
        frames = "".join(traceback.format_tb(error.__traceback__))
        said = next(iter(str(error).splitlines()), "")
        sent = f"Original Traceback\n{frames}{type(error).__name__}: {said}"  # as from a worker
        line.send(Outcome(len(reads), error=sent))


def _rewrite(source: str, contents: bytes) -> None:
    """Write other contents, with a time of their own: a second after the last version."""
    later_ns = os.stat(source).st_mtime_ns + 1_000_000_000
    Path(source).write_bytes(contents)
    os.utime(source, ns=(later_ns, later_ns))


def _change_at_stat(source: str, later: bytes, reads: list[str]) -> None:
    """Change the source when its time is requested again after a read."""
    real = os.stat

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if reads and path != -1 and str(path) == source:
            os.stat = real
            _rewrite(source, later)
        return real(path, *args, **kwargs)

    os.stat = stat


def _run_ahead() -> None:
    """Let the clocks of this process run an hour per second."""
    for name in "time", "monotonic", "perf_counter":
        clock: Callable[[], float] = getattr(time, name)
        setattr(time, name, partial(_ahead, clock, clock()))


def _ahead(clock: Callable[[], float], began: float) -> float:
    return began + _HURRY * (clock() - began)


def _watch(
    source: str, line: Connection, gate: Event | None, gate_at: str, interrupt: bool
) -> tuple[list[str], list[str], list[str]]:
    """Return lists of reads of the source, of paths opened for writing, and of paths renamed."""
    reads: list[str] = []
    written: list[str] = []
    renamed: list[str] = []
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
        if event in ("os.rename", "os.link"):
            renamed.append(str(args[0]))
            wait("renaming")
        if interrupt and (event in ("os.rename", "os.link") or program):
            raise KeyboardInterrupt

    sys.addaudithook(hear)  # it receives every event that Python reports about itself
    return reads, written, renamed


def _border(place: str, at_border: Callable[[], None]) -> None:
    """Refuse a rename into `place` or out of it, like one to another file system."""

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
    """Limit each file to `size` bytes: a larger one is an error, or kills the process."""
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
    """Do the same for files from `open`, if the system has no such limit."""
    with suppress(ImportError, AttributeError):  # without it, shutil copies with open
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
