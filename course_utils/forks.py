"""What a forked process gets anew, and what it must keep as it is.

Fork copies no threads: a lock that one held at that moment would stay locked in the child for ever.
It copies open files and connections: to close one in the child could change what the parent has.
An interrupt that comes meanwhile waits until the fork is over, and one that is lost comes again.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

_made: weakref.WeakKeyDictionary[Any, dict[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()
_of_parent: list[Any] = []
_held: list[Any] = []  # while this process forks
_interrupts: list[int] = []  # that came while it did
_handlers: list[Any] = []  # which deals with interrupts when it does not
_cell: Callable[[], object] = int  # what differs from cell to cell; without a notebook always 0


def set_in_every_fork(owner: Any, name: str, make: Callable[[], Any]) -> None:
    """Set `owner.name = make()`, now and in every process that is forked from this one.

        set_in_every_fork(self, "_lock", threading.Lock)

    Use the lock itself, `with self._lock`: an interrupt finds no gap in it, and whoever forked with
    the lock in hand gives back the one that was taken.
    """
    setattr(owner, name, make())
    _made.setdefault(owner, {})[name] = make


def keep_of_parent(inherited: Any) -> None:
    """Keep what a fork copied, such as an open file, until this process ends."""
    _of_parent.append(inherited)


def _hold_file_systems() -> None:
    """Hold every file system that fsspec keeps, so that a process forked now clears none away.

    fsspec empties its cache in a forked process. A file system that dies there closes its
    connections, takes them off the epoll that it shares with its parent, and the parent then waits
    for an answer of which nobody tells it.
    """
    spec = sys.modules.get("fsspec.spec")
    kinds = [spec.AbstractFileSystem] if spec else []
    for kind in kinds:
        kinds += kind.__subclasses__()  # which the loop then comes to
        _held.extend(kind._cache.values())


def _begin_as_child() -> None:
    _of_parent.extend(_held)
    _held.clear()
    for owner, makers in list(_made.items()):
        for name, make in makers.items():
            setattr(owner, name, make())


def _hold_interrupts() -> None:
    """Let an interrupt wait for the end of a fork.

    What is run before and after a fork loses its exceptions, and what it had to do is not done:
    nobody would hear of the interrupt, and logging would keep its lock for ever.
    """
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler) and threading.current_thread() is threading.main_thread():
        _handlers.append(handler)
        _deal_with_interrupts(lambda number, frame: _interrupts.append(number))


def _let_interrupts() -> None:
    if _handlers:
        _deal_with_interrupts(_handlers.pop())
    if _interrupts:
        _interrupts.clear()
        _thread.start_new_thread(_interrupt_again, (_cell(),))


def _interrupt_again(cell: object) -> None:
    """Interrupt the main thread where an error is not lost, unless its cell ends before that."""
    time.sleep(0.05)
    if _cell() != cell:
        return
    if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def hear_interrupts(cell: Callable[[], object]) -> None:
    """Let an interrupt come again that Python lost, as it does whatever is raised in a finalizer.

    torch has one where the memory of a batch is given back. The interrupt has reached the workers
    too, and the loop would wait for batches of workers that are gone.

    Args:
        cell: returns what differs from cell to cell; the interrupt of one is none of the next.
    """
    global _cell
    _cell, reports = cell, sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(_interrupt_again, (cell(),))
        else:
            reports(lost)

    sys.unraisablehook = hook


def _deal_with_interrupts(handler: Any) -> None:
    while signal.getsignal(signal.SIGINT) is not handler:
        try:
            signal.signal(signal.SIGINT, handler)
        except KeyboardInterrupt:
            _interrupts.append(signal.SIGINT)


def _begin_uninterrupted() -> None:
    if _handlers:
        _deal_with_interrupts(_handlers.pop())
    _interrupts.clear()  # they were the parent's


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_file_systems, after_in_parent=_held.clear, after_in_child=_begin_as_child
    )
    # Registered last: it is the first to be run before a fork, and the last to be run after it.
    os.register_at_fork(
        before=_hold_interrupts,
        after_in_parent=_let_interrupts,
        after_in_child=_begin_uninterrupted,
    )
