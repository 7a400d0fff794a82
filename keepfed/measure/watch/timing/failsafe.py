"""Stop watching at the first error of our own code; the program continues as if unwatched."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from keepfed.measure.watch.timing.ring_file import FAILED, FOLDER, PROCESS

_FULL = (errno.ENOSPC, errno.EDQUOT)
_errors: list[str] = []  # of this process; only the first one is printed


def has_failed() -> bool:
    """Return whether this process has stopped watching."""
    return bool(_errors)


def give_up(error: BaseException, happens: str = "the program continues unwatched") -> None:
    """Print one line about `error` and what happens now, unless a line was printed before."""
    first = not _errors
    _errors.append(type(error).__name__)
    if not first:
        return
    with suppress(Exception):  # stderr may be closed
        said = " ".join(f"{type(error).__name__}: {error}".split())
        print(f"keepfed watch: {happens} ({said}).{_next_step(error)}", file=sys.stderr, flush=True)
    with suppress(Exception):  # there may be no such file
        mark = Path(os.environ[FOLDER], f"{os.getpid()}{PROCESS}")
        mark.rename(mark.with_name(f"{os.getpid()}{FAILED}"))  # which needs no space on the disk


def _next_step(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _FULL:
        return " Free some space there, or set TMPDIR to a folder with more space."
    return ""
