"""What a forked process gets anew, and what it must keep as it is.

Fork copies no threads: a lock that one held at that moment would stay locked in the child for ever.
It copies open files and connections: to close one in the child could change what the parent has.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from keepfed import interrupts

_made: weakref.WeakKeyDictionary[Any, dict[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()
_of_parent: list[Any] = []
_held: list[Any] = []  # while this process forks


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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_file_systems, after_in_parent=_held.clear, after_in_child=_begin_as_child
    )
    # Registered last: it is the first to be run before a fork, and the last to be run after it.
    os.register_at_fork(
        before=interrupts.hold,
        after_in_parent=interrupts.let_go,
        after_in_child=interrupts.forget,
    )
