"""Replace locks in forked processes, and keep inherited files open.

A fork does not copy threads, so a lock that a thread holds at this moment would stay locked in the
child forever. A fork does copy open files and connections, and closing one in the child could
change its state in the parent.
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
_held: list[Any] = []  # file systems, referenced while this process forks


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


def _hold_file_systems() -> None:
    """Reference every cached fsspec file system, so that the forked process deletes none.

    fsspec clears its cache in a forked process. If that deletes a file system, its connections are
    closed and removed from the epoll instance shared with the parent. The parent then waits forever
    for a response.
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
        before=interrupts.block_sigint,
        after_in_parent=interrupts.unblock_sigint,
        after_in_child=interrupts.discard_blocked,
    )
