"""Turn the error of any library that reads a file into one sentence with the next step.

    with reading(path, index):
        image = decode(content)

Each library has its own errors for a damaged file, often without the path. `keepfed.checks` finds
what raises no error.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from textwrap import shorten
from typing import Any

from keepfed.checks import open_regular
from keepfed.errors import KeepfedError, MissingFileError, ReadError, unreadable

_AGAIN = "Copy or create it again"
_PLAIN = {"OSError", "ValueError", "RuntimeError"}  # names that tell nothing
_INSIDE = (LookupError, TypeError, AttributeError, ArithmeticError)  # of code that trusts a file
_FORBIDDEN = "you are not allowed to read it", "Ask its owner for permission"
_MANY = "too many files are open", "Use fewer workers, or raise the limit with `ulimit -n`"
_STORAGE = "its storage does not answer", "Check that it is mounted, then try again"
_PROBLEMS = {  # that the system reports, each with its next step
    errno.ENOTDIR: ("a part of its path is a file, not a folder", "Check the path"),
    errno.EISDIR: ("it is a folder, not a file", "Give the path of a file"),
    errno.ELOOP: ("it is a link that leads back to itself", "Replace the link by the file"),
    errno.ENAMETOOLONG: ("its name is too long", "Use a shorter name"),
    **dict.fromkeys([errno.EACCES, errno.EPERM], _FORBIDDEN),
    **dict.fromkeys([errno.EMFILE, errno.ENFILE], _MANY),
    **dict.fromkeys([errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT], _STORAGE),
}
_KINDS = {  # first bytes of files that are never what a reader expects
    b"version https://git-lfs": "a pointer of Git LFS; `git lfs pull` gets the data",
    b"<!DOCTYPE": "a web page",
    b"<!doctype": "a web page",
    b"<html": "a web page",
    b"\x1f\x8b": "compressed by gzip",
    b"PK\x03\x04": "a zip archive",
}
_ARCHIVES = (".gz", ".tgz", ".npz", ".pt", ".zip")  # endings of files that may be


@contextmanager
def reading(
    path: str | os.PathLike[str], index: int | str | None = None, *, step: str = _AGAIN
) -> Iterator[None]:
    """Turn every error of the block into the `ReadError` that `read_error` returns."""
    try:
        yield
    except KeepfedError:
        raise
    except Exception as error:
        raise read_error(error, path, index, step=step) from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the content of a JSON file, compressed or not. Call it in a block of `reading`."""
    with open_regular(path) as file:
        content = file.read()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def read_error(
    error: Exception,
    path: str | os.PathLike[str],
    index: int | str | None = None,
    *,
    step: str = _AGAIN,
) -> ReadError:
    """Return the error of a library as one that names path, sample, problem and next step.

    `step` is what to do with a damaged file, as an imperative clause.
    """
    if isinstance(error, ReadError):  # of a reader within this one, which knows more
        if not isinstance(error.__cause__, Exception):
            return error
        error = error.__cause__
    if isinstance(named := getattr(error, "filename", None), str):
        path = named  # for a folder, the file in it
    kind = MissingFileError if isinstance(error, FileNotFoundError) else ReadError
    known = _PROBLEMS.get(getattr(error, "errno", None) or 0)
    if isinstance(error, MemoryError):
        known = "it needs more memory than there is, or its header is damaged", step
    if kind is MissingFileError and (error.args[:1] == (errno.ENOENT,) or " " not in str(error)):
        known = "it does not exist", f"Check the path. {step}"
    if kind is MissingFileError and os.path.islink(path):
        known = "it is a link to a missing file", "Restore the file, or remove the link"
    problem, step = known or (_kind_of(path) or _text(error), step)
    return unreadable(path, problem, step, index, kind)


def describe(head: bytes, path: str | os.PathLike[str]) -> str:
    """Say what a file is instead of what its name promises, by its first bytes, or return ""."""
    kinds = [kind for start, kind in _KINDS.items() if head.startswith(start)]
    if head.startswith((b"PK", b"\x1f")) and os.fspath(path).endswith(_ARCHIVES):
        return ""
    return f"it is {kinds[0]}" if kinds else "" if head else "it is empty"


def _kind_of(path: str | os.PathLike[str]) -> str:
    with suppress(OSError, ValueError), open_regular(path) as file:
        return describe(file.read(32), path)
    return ""


def _text(error: Exception) -> str:
    """Return the message of a library on one line, without addresses of objects."""
    text = shorten(re.sub(r"<[^>]* at 0x\w+>", "", str(error)), 300).rstrip(".")
    name = type(error).__name__
    if isinstance(error, _INSIDE):
        return f"its content is not what was expected ({name}: {text})"
    return (text if name in _PLAIN else f"{text} ({name})") if text else name
