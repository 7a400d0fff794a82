"""Choose how workers start, and import once what all of them need."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from course_utils.errors import CourseError


def start_method() -> str:
    """Return how the notebooks start workers: forkserver, or spawn on Windows.

    Fork is not chosen even where it is the default: it copies the locks of threads that it does not
    copy. `$COURSE_START_METHOD` overrules the choice.

    Raises:
        CourseError: this system has no such way.
    """
    default = "spawn" if sys.platform == "win32" else "forkserver"
    method = os.environ.get("COURSE_START_METHOD") or default
    methods = multiprocessing.get_all_start_methods()
    if method not in methods:
        raise CourseError(
            f"Workers cannot start by {method!r} here; set COURSE_START_METHOD to one of "
            f"{', '.join(methods)}, or leave it unset."
        )
    return method


def use_start_method(preload: Iterable[str] = ("torch", "numpy")) -> str:
    """Make this process start workers by forkserver, or spawn on Windows; return which.

    Call it before the first worker: the server that forks the workers imports the modules of
    `preload` once, and no worker imports them again. If the server runs already without them, a
    RuntimeWarning says so. `$COURSE_START_METHOD` overrules the choice.

    Raises:
        ValueError: `preload` names a module that does not exist; the server would only pass over
            it, and every worker would import it anew.
        CourseError: `$COURSE_START_METHOD` is unknown here.
    """
    modules = list(preload)
    if missing := [name for name in modules if not _exists(name)]:
        raise ValueError(f"There is no module {missing[0]!r} to preload; correct its name.")
    method = start_method()
    if multiprocessing.get_start_method(allow_none=True) != method:
        multiprocessing.set_start_method(method, force=True)
    if method == "forkserver":
        from multiprocessing import forkserver

        loaded = modules_of_server()
        if loaded is None:
            multiprocessing.set_forkserver_preload(modules)
        elif late := [name for name in modules if name not in loaded]:
            warnings.warn(
                f"Too late to preload {', '.join(late)}: the server that starts workers runs "
                "already, so each worker imports them itself. Restart Python and call "
                "use_start_method before the first worker.",
                RuntimeWarning,
                stacklevel=2,
            )
        forkserver.ensure_running()  # otherwise the first loader would wait for it
    return method


def _exists(module: str) -> bool:
    try:
        return module in sys.modules or find_spec(module) is not None
    except ModuleNotFoundError:  # the package that should hold it
        return False


def modules_of_server() -> list[str] | None:
    """Return what the running server was told to load; None: no server runs."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver  # nothing public tells whether it runs
    return None if server._forkserver_pid is None else list(server._preload_modules)
