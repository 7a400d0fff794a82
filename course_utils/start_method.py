"""Choose how workers start: the notebooks do it so, and `course doctor` says so."""

import multiprocessing
import os
import sys

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
