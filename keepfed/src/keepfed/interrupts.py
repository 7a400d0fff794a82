"""Delay a SIGINT that arrives during a fork, and raise again one that Python lost.

Python ignores exceptions in fork hooks and finalizers, so a KeyboardInterrupt there has no effect.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_blocked: list[int] = []  # signals that arrived while this process forked
_handlers: list[Any] = []  # original handler, while this process forks
_cell: Callable[[], object] = int  # returns an ID of the running cell; 0 outside of notebooks


def block_sigint() -> None:
    """Delay SIGINT until the fork has finished.

    Python ignores an exception in a fork hook and skips the rest of that hook. The interrupt would
    have no effect, and `logging` would keep its lock forever.
    """
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler) and threading.current_thread() is threading.main_thread():
        _handlers.append(handler)
        _set_handler(lambda number, frame: _blocked.append(number))


def unblock_sigint() -> None:
    """Restore the handler, and deliver a SIGINT that arrived while this process forked."""
    if _handlers:
        _set_handler(_handlers.pop())
    if _blocked:
        _blocked.clear()
        _thread.start_new_thread(_raise_later, (_cell(),))


def _raise_later(cell: object) -> None:
    """Interrupt the main thread after the finalizer or hook, unless its cell ends before that."""
    time.sleep(0.05)
    if _cell() != cell:
        return
    if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def reraise_lost_interrupts(cell: Callable[[], object]) -> None:
    """Raise a KeyboardInterrupt again if Python lost it in a finalizer.

    torch frees the memory of a batch in a finalizer. The interrupt also ends the workers, so
    without a second one the loop would wait for their batches forever.

    Args:
        cell: Returns an ID of the running cell, so that an interrupt never ends a later cell.
    """
    global _cell
    _cell, reports = cell, sys.unraisablehook

    def hook(lost: sys.UnraisableHookArgs) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(_raise_later, (cell(),))
        else:
            reports(lost)

    sys.unraisablehook = hook


def _set_handler(handler: Any) -> None:
    while signal.getsignal(signal.SIGINT) is not handler:
        try:
            signal.signal(signal.SIGINT, handler)
        except KeyboardInterrupt:
            _blocked.append(signal.SIGINT)


def discard_blocked() -> None:
    """Restore the handler in a forked process, and drop signals that were meant for the parent."""
    if _handlers:
        _set_handler(_handlers.pop())
    _blocked.clear()
