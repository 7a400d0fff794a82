"""Errors that users are expected to meet, and messages that end with the next step."""

import errno
from importlib import import_module
from typing import Any

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)
IMPORT_NAMES = {  # of packages that pip knows by another name
    "ipython": "IPython",
    "opencv-python-headless": "cv2",
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


def required(module: str, install: str = "") -> Any:
    """Import a module, or raise the error of `not_installed`."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise not_installed(error, install) from None


def not_installed(error: ImportError, install: str = "") -> KeepfedError:
    """Return an error that tells how to install a missing package.

    Args:
        error: The failed import.
        install: Imperative clause, if it is not pip that installs this package.

    Raises:
        ImportError: If one of our own modules is missing, because pip cannot fix that.
    """
    name = (error.name or "").partition(".")[0]
    if not name or name.startswith(("keepfed", "course_")):
        raise error
    step = install or f"run pip install {_PACKAGES.get(name, name)}"
    return KeepfedError(f"The package {name} is not installed: {step}.")


def is_disk_full(error: OSError) -> bool:
    """Return whether the disk or the quota is full."""
    return error.errno in _FULL


def sentence(
    error: KeepfedError | OSError, *, elsewhere: str = "choose a folder that you may write to"
) -> str:
    """Return the message of an error, with a next step.

    Args:
        error: An expected error.
        elsewhere: Imperative clause that tells how to choose another folder.
    """
    if isinstance(error, KeepfedError) or error.errno is None:
        return str(error)  # our own message
    place = error.filename or "the folder"
    if error.errno in _FULL:
        at = f" at {error.filename}" if error.filename else ""
        return f"The disk is full{at}. Free some space, or {elsewhere}, and run again."
    if error.errno in _FORBIDDEN:
        return f"Writing to {place} is not allowed. To fix this, {elsewhere}, and run again."
    if error.errno in _NO_FOLDER:
        return f"{place} is a file, not a folder. To fix this, {elsewhere}, and run again."
    return f"{place}: {error.strerror or error}. Fix this and run again."
