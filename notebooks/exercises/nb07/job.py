"""Run a learner's `stage` in a process of its own: watched, held up, or ended half way.

Nothing heavy is imported: the check starts several.
"""

import builtins
import errno
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_PROGRAM = "subprocess.Popen", "os.system"


@dataclass(frozen=True)
class Job:
    """What a process is to do."""

    module: str
    function: str  # of the module; it gets `source` and `place`
    source: str  # the file to stage
    place: str  # the folder to stage it in
    calls: int = 1
    hold: bool = False  # wait as soon as the source is read, until a word comes over the line
    limit: int = 0  # bytes that a file may have; 0: any number
    deadly: bool = False  # to write beyond the limit ends the process, as SIGKILL would
    at_border: bool = False  # the limit begins where a renaming would lead into another file system


@dataclass(frozen=True)
class Outcome:
    """What came of a call: a path or a traceback, and how often the source was read."""

    reads: int
    returned: str = ""
    error: str = ""


def main(job: Job, line: Connection) -> None:
    """Say over the line when all is ready, when a held job reads, and what came of each call."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in 1, 2:  # what is printed here, by programs too, would reach the notebook
        os.dup2(nowhere, stream)
    reads = _watch(job, line)

    def limit() -> None:
        if job.limit:
            _limit_files(job.limit, deadly=job.deadly)

    _border(job.place, limit)
    try:
        stage = getattr(importlib.import_module(job.module), job.function)
        if job.at_border:  # a program may be mv
            sys.addaudithook(lambda event, _: limit() if event in _PROGRAM else None)
        else:
            limit()
        line.send("ready")
        for _ in range(job.calls):
            reads.clear()
            path = os.fsdecode(stage(job.source, job.place))
            line.send(Outcome(len(reads), returned=path))
    except Exception as error:
        line.send(Outcome(len(reads), error=_traceback(error)))


def _watch(job: Job, line: Connection) -> list[str]:
    """Return a list that grows when the source is read; hold the first reader if that is wanted."""
    reads: list[str] = []

    def hear(event: str, args: tuple[Any, ...]) -> None:
        program = event in _PROGRAM and job.source in str(args[:2])
        if program or (event == "open" and _is_read(job.source, *args[:2])):
            reads.append(event)
            if job.hold and len(reads) == 1:
                line.send("reading")
                line.recv()

    sys.addaudithook(hear)  # it hears everything that Python reports about itself
    return reads


def _is_read(source: str, path: Any, mode: str | None) -> bool:
    named = isinstance(path, str | bytes | os.PathLike) and os.fsdecode(path) == source
    return named and not set("wax+") & set(mode or "r")


def _border(place: str, at_border: Callable[[], None]) -> None:
    """Let no renaming lead into `place` or out of it, as if that were a file system of its own.

    Where one is refused, `at_border` is called before.
    """

    def guarded(rename: Callable[..., None]) -> Callable[..., None]:
        def renamed(old: Any, new: Any, **how: Any) -> None:
            roots = {Path(place) in Path(os.path.abspath(path)).parents for path in (old, new)}
            if len(roots) > 1:
                at_border()
                said = os.strerror(errno.EXDEV)
                raise OSError(errno.EXDEV, said, os.fspath(old), None, os.fspath(new))
            rename(old, new, **how)

        return renamed

    for name in "rename", "replace", "link":
        setattr(os, name, guarded(getattr(os, name)))


def _limit_files(size: int, *, deadly: bool) -> None:
    """Let no file grow beyond `size` bytes: writing on is an error, or the end of the process."""
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


def _traceback(error: Exception) -> str:
    """Return the frames and one line with what was raised, as if a worker had sent it home."""
    said = next(iter(str(error).splitlines()), "")
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"Original Traceback\n{frames}{type(error).__name__}: {said}"
