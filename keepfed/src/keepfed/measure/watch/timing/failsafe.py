"""Stop watching at the first error in keepfed, so that the program continues unwatched."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from keepfed.measure.watch.timing.ring_file import FAILED, FOLDER, PROCESS

OBSERVER = "KEEPFED_OBSERVER"  # environment variable with a module that has a `watch_iterator`
_FULL = (errno.ENOSPC, errno.EDQUOT)
_errors: list[str] = []  # errors of this process; keepfed prints only the first one


def has_failed() -> bool:
    """Return whether this process has stopped watching."""
    return bool(_errors)


def give_up(error: BaseException, message: str = "") -> None:
    """Print one line about `error` and what happens next, unless a line was already printed."""
    first = not _errors
    _errors.append(type(error).__name__)
    if not first:
        return
    with suppress(Exception):  # stderr may be closed
        cause = " ".join(f"{type(error).__name__}: {error}".split())
        tool = "audit" if OBSERVER in os.environ else "watch"
        message = message or f"The program continues un{tool}ed"
        print(
            f"keepfed {tool}: {message} ({cause}).{_next_step(error)}", file=sys.stderr, flush=True
        )
    with suppress(Exception):  # the file may not exist
        mark = Path(os.environ[FOLDER], f"{os.getpid()}{PROCESS}")
        # Rename the file, because writing a new one fails on a full disk.
        mark.rename(mark.with_name(f"{os.getpid()}{FAILED}"))


def _next_step(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _FULL:
        return " Free disk space in this folder, or set TMPDIR to a folder with more space."
    return ""
