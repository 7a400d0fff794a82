"""Errors that users are expected to meet, and messages that end with the next step."""

from __future__ import annotations

import errno
import os
from importlib import import_module
from typing import Any

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)
IMPORT_NAMES = {  # of packages that pip knows by another name
    "ipython": "IPython",
    "pillow": "PIL",
    "pyyaml": "yaml",
    "scikit-image": "skimage",
}
_PACKAGES = {name: package for package, name in IMPORT_NAMES.items()}


class KeepfedError(RuntimeError):
    """Expected error. Its message names the problem, the cause and the next step.

    Attributes:
        code: Exit code of a command that ends with this error. 2 for a wrong command line.
    """

    def __init__(self, message: str = "", *, code: int = 1):
        super().__init__(message)
        self.code = code

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # IPython calls this, so a notebook shows only the message


class ReadError(KeepfedError, OSError):
    """A file, or the sample `index` in it, that cannot be read. `keepfed.reading` raises it."""

    def __init__(self, message: str = "", *, path: str = "", index: int | str | None = None):
        super().__init__(message)
        self.path, self.index = path, index


class MissingFileError(ReadError, FileNotFoundError):
    """A file that does not exist."""


def unreadable(
    path: str | os.PathLike[str],
    problem: str,
    step: str,
    index: int | str | None = None,
    kind: type[ReadError] = ReadError,
) -> ReadError:
    """Return an error whose message names path, sample, problem and next step."""
    # a name that is not valid UTF-8 could not be printed
    name = os.fsencode(path).decode("utf-8", "backslashreplace")
    sample = "" if index is None else f", sample {index}"
    text = f"Cannot read {name}{sample}: {problem}. {step}."
    message = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return kind(message, path=os.fspath(path), index=index)


def required(module: str, install: str = "") -> Any:
    """Import a module, or raise the error of `not_installed`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise not_installed(error, install) from None


def not_installed(error: ImportError, install: str = "") -> KeepfedError:
    """Return an error that tells how to install a missing package, by pip or the clause `install`.

    If one of our own modules is missing, `error` is raised, because pip cannot fix that.
    """
    name = (error.name or "").partition(".")[0]
    if not name or name.startswith(("keepfed", "course_")):
        raise error
    step = install or f"run pip install {_PACKAGES.get(name, name)}"
    return KeepfedError(f"The package {name} is not installed: {step}.")


def sentence(
    error: KeepfedError | OSError, *, elsewhere: str = "choose a folder that you may write to"
) -> str:
    """Return the message of an error, with a next step. `elsewhere` chooses another folder."""
    if isinstance(error, KeepfedError) or error.errno is None:
        return str(error)  # our own message
    place = error.filename or "the folder"
    if error.errno in FULL:
        at = f" at {error.filename}" if error.filename else ""
        return f"The disk is full{at}. Free some space, or {elsewhere}, and run again."
    if error.errno in _FORBIDDEN:
        return f"Writing to {place} is not allowed. To fix this, {elsewhere}, and run again."
    if error.errno in _NO_FOLDER:
        return f"{place} is a file, not a folder. To fix this, {elsewhere}, and run again."
    return f"{place}: {error.strerror or error}. Fix this and run again."
