"""Imported by the server that forks workers, and first: it hears no interrupt, collects no garbage.

To look for garbage is to write into every object, and a forked process gets a page of its own
wherever it writes: with torch loaded that is 50 MB for each worker, once it has collected.

An interrupt of the notebook reaches the server too. NumPy makes an ImportError of one that comes
while it is imported, and the server passes over such errors; NumPy is half there then, and no
worker can import it any more. So the server hears no interrupts. Its workers do.

No other process may import this: it would go on without collecting and without interrupts.
"""

import gc
import os
import signal
import sys

_SERVER = os.getpid()


def _begin_worker() -> None:
    if os.getppid() == _SERVER:  # and not a process that a worker forks
        gc.freeze()
        gc.enable()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


if sys.platform != "win32":
    gc.disable()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.register_at_fork(after_in_child=_begin_worker)
