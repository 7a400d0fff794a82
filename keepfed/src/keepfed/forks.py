"""Replace locks in forked processes, keep inherited files open, and delay interrupts.

A fork does not copy threads, so a lock that a thread holds at this moment would stay locked in the
child forever. A fork does copy open files and connections, and closing one in the child could
change its state in the parent. Python ignores exceptions in fork hooks and finalizers, so a
KeyboardInterrupt there would have no effect.
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
_held: list[Any] = []  # file systems, referenced while this process forks
_blocked: list[int] = []  # signals that arrived while this process forked
_handlers: list[Any] = []  # original handler of SIGINT, while this process forks
_cell: Callable[[], object] = int  # returns an ID of the running cell; 0 outside of notebooks


def reset_after_fork(owner: Any, name: str, make: Callable[[], Any]) -> None:
    """Set `owner.name = make()`, now and in every process that is forked from this one.

        reset_after_fork(self, "_lock", threading.Lock)

    Use the lock as a context manager, `with self._lock`. Then no interrupt leaves it locked, and
    code that forks inside the block releases the lock that it acquired, not its replacement.
    """
    setattr(owner, name, make())
    _made.setdefault(owner, {})[name] = make


def keep_inherited(inherited: Any) -> None:
    """Keep an object that a fork copied, such as an open file, until this process ends."""
    _of_parent.append(inherited)


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


def _raise_later(cell: object) -> None:
    """Interrupt the main thread after the finalizer or hook, unless its cell ends before that."""
    time.sleep(0.05)
    if _cell() != cell:
        return
    if hasattr(signal, "pthread_kill") and (main := threading.main_thread().ident):
        signal.pthread_kill(main, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _block_sigint() -> None:
    """Delay SIGINT until the fork has finished. Otherwise `logging` could keep its lock forever."""
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler) and threading.current_thread() is threading.main_thread():
        _handlers.append(handler)
        _set_handler(lambda number, frame: _blocked.append(number))


def _unblock_sigint() -> None:
    """Restore the handler, and deliver a SIGINT that arrived while this process forked."""
    if _handlers:
        _set_handler(_handlers.pop())
    if _blocked:
        _blocked.clear()
        _thread.start_new_thread(_raise_later, (_cell(),))


def _discard_blocked() -> None:
    """Restore the handler, and in a forked process drop signals that were meant for the parent."""
    if _handlers:
        _set_handler(_handlers.pop())
    _blocked.clear()


def _set_handler(handler: Any) -> None:
    while signal.getsignal(signal.SIGINT) is not handler:
        try:
            signal.signal(signal.SIGINT, handler)
        except KeyboardInterrupt:
            _blocked.append(signal.SIGINT)


def _hold_file_systems() -> None:
    """Reference every cached fsspec file system, so that the forked process deletes none.

    That would close connections and remove them from the epoll instance shared with the parent,
    which would then wait forever for a response.
    """
    spec = sys.modules.get("fsspec.spec")
    kinds = [spec.AbstractFileSystem] if spec else []
    for kind in kinds:
        kinds += kind.__subclasses__()  # extends the list that the loop iterates
        _held.extend(kind._cache.values())


def _begin_as_child() -> None:
    _of_parent.extend(_held)
    _held.clear()
    for owner, makers in list(_made.items()):
        for name, make in makers.items():
            setattr(owner, name, make())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_file_systems, after_in_parent=_held.clear, after_in_child=_begin_as_child
    )
    # Registered last, because Python calls `before` hooks in reverse order. This one runs first
    # before a fork and last after it.
    os.register_at_fork(
        before=_block_sigint, after_in_parent=_unblock_sigint, after_in_child=_discard_blocked
    )
