"""Interrupts that no one would hear: they wait for the end of a fork, or come again."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

_came: list[int] = []  # while this process forked
_handlers: list[Any] = []  # which deals with interrupts when it does not
_cell: Callable[[], object] = int  # what differs from cell to cell; without a notebook always 0


def hold() -> None:
    """Let an interrupt wait for the end of a fork.

    What is run before and after a fork loses its exceptions, and what it had to do is not done:
    nobody would hear of the interrupt, and logging would keep its lock for ever.
    """
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler) and threading.current_thread() is threading.main_thread():
        _handlers.append(handler)
        _deal_with(lambda number, frame: _came.append(number))


def let_go() -> None:
    """Let those come again that came while this process forked."""
    if _handlers:
        _deal_with(_handlers.pop())
    if _came:
        _came.clear()
        _thread.start_new_thread(_come_again, (_cell(),))


def _come_again(cell: object) -> None:
    """Interrupt the main thread where an error is not lost, unless its cell ends before that."""
    time.sleep(0.05)
    if _cell() != cell:
        return
    if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def hear_lost_ones(cell: Callable[[], object]) -> None:
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
            _thread.start_new_thread(_come_again, (cell(),))
        else:
            reports(lost)

    sys.unraisablehook = hook


def _deal_with(handler: Any) -> None:
    while signal.getsignal(signal.SIGINT) is not handler:
        try:
            signal.signal(signal.SIGINT, handler)
        except KeyboardInterrupt:
            _came.append(signal.SIGINT)


def forget() -> None:
    """Begin as a forked process, for which none of them was meant."""
    if _handlers:
        _deal_with(_handlers.pop())
    _came.clear()  # they were the parent's
