"""What is expected to go wrong, and how it is said: one sentence that ends with the next step."""

import errno

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.EEXIST, errno.ENOTDIR)


class KeepfedError(RuntimeError):
    """Tell of something expected to go wrong: one sentence that ends with the next step."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]  # IPython asks for this: a notebook then shows the sentence alone


def not_installed(error: ModuleNotFoundError, install: str) -> KeepfedError:
    """Return what to say if a package is missing; `install` is what brings it, for pip.

    Raises:
        ModuleNotFoundError: If a module of ours is missing, which no installation brings.
    """
    name = (error.name or "").partition(".")[0]
    if not name or name.startswith(("keepfed", "course_")):
        raise error
    return KeepfedError(f'The package {name} is not installed: run pip install "{install}".')


def sentence(
    error: KeepfedError | OSError, *, elsewhere: str = "choose a folder that you may write to"
) -> str:
    """Say what went wrong, and what to do; `elsewhere` is how to choose another place."""
    if isinstance(error, KeepfedError):
        return str(error)
    place = error.filename or "the folder"
    if error.errno in _FULL:
        at = f" at {error.filename}" if error.filename else ""
        return f"The disk is full{at}; free some space or {elsewhere}, and run again."
    if error.errno in _FORBIDDEN:
        return f"Writing to {place} is not allowed; {elsewhere}, and run again."
    if error.errno in _NO_FOLDER:
        return f"{place} is a file, not a folder; {elsewhere}, and run again."
    return f"{place}: {error.strerror or error}; mend that and run again."
