"""Imported by the server that forks workers, and first: what it has loaded is nobody's garbage.

To look for garbage is to write into every object, and a forked process gets a page of its own
wherever it writes: with torch loaded that is 50 MB for each worker, once it has collected.
No other process may import this: it would go on without collecting.
"""

import gc
import os
import sys

_SERVER = os.getpid()


def _begin_worker() -> None:
    if os.getppid() == _SERVER:  # and not a process that a worker forks
        gc.freeze()
        gc.enable()


if sys.platform != "win32":
    gc.disable()
    os.register_at_fork(after_in_child=_begin_worker)
