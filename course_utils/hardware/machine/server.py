"""Preloaded first by the forkserver: block SIGINT and disable garbage collection there.

The garbage collector writes to every object, and a forked process gets its own copy of every page
that it writes to. With torch loaded, one collection costs each worker 50 MB.

An interrupt of the notebook also reaches the server. If it arrives during the import of NumPy,
NumPy turns it into an ImportError. The server ignores import errors, so NumPy stays partly
imported, and no worker can import it any more. The server therefore blocks SIGINT. Its workers
unblock it. Do not import this module in another process: it would lose SIGINT and the collector.
"""

import gc
import os
import signal
import sys

_SERVER = os.getpid()


def _begin_worker() -> None:
    if os.getppid() == _SERVER:  # skip processes that a worker forks
        gc.freeze()
        gc.enable()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


if sys.platform != "win32":
    gc.disable()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.register_at_fork(after_in_child=_begin_worker)
