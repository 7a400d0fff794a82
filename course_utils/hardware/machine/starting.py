"""Choose the start method of workers, and preload the modules that all of them need."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from course_utils.errors import CourseError


def start_method() -> str:
    """Return the start method of the notebooks: forkserver, or spawn on Windows.

    Fork is never the default, because it copies locks that threads hold, but not the threads.
    `$COURSE_START_METHOD` overrides the choice.

    Raises:
        CourseError: If this system does not support the start method.
    """
    default = "spawn" if sys.platform == "win32" else "forkserver"
    method = os.environ.get("COURSE_START_METHOD") or default
    methods = multiprocessing.get_all_start_methods()
    if method not in methods:
        raise CourseError(
            f"This system does not support the start method {method!r}. Set COURSE_START_METHOD to "
            f"one of {', '.join(methods)}, or unset it."
        )
    return method


def use_start_method(preload: Sequence[str]) -> str:
    """Set the start method of this process to forkserver (spawn on Windows), and return it.

    Call it before the first worker starts. The server that forks the workers imports the modules of
    `preload` once, so workers do not import them again. A RuntimeWarning reports a server that is
    already running without them. `$COURSE_START_METHOD` overrides the choice.

    Raises:
        CourseError: If this system does not support `$COURSE_START_METHOD`.
    """
    method = start_method()
    if multiprocessing.get_start_method(allow_none=True) != method:
        multiprocessing.set_start_method(method, force=True)
    if method == "forkserver":
        from multiprocessing import forkserver

        loaded = modules_of_server()
        if loaded is None:
            multiprocessing.set_forkserver_preload([*preload])
        elif late := [name for name in preload if name not in loaded]:
            warnings.warn(
                f"Cannot preload {', '.join(late)}, because the server that starts workers is "
                "already running. Each worker imports them itself. Restart Python and call "
                "use_start_method before the first worker.",
                RuntimeWarning,
                stacklevel=2,
            )
        forkserver.ensure_running()  # otherwise the first loader waits for it
    return method


def modules_of_server() -> list[str] | None:
    """Return the modules that the running server preloads, or None if no server runs."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver  # no public API reports whether it runs
    return None if server._forkserver_pid is None else list(server._preload_modules)
