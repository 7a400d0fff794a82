"""Locks that a forked process gets anew: fork copies them as they are, but not the threads.

A lock that some thread held at that moment would stay locked in the child for ever.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

_made: weakref.WeakKeyDictionary[Any, dict[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()


def set_in_every_fork(owner: Any, name: str, make: Callable[[], Any]) -> None:
    """Set `owner.name = make()`, now and in every process that is forked from this one.

        set_in_every_fork(self, "_lock", threading.Lock)

    Use the lock itself, `with self._lock`: an interrupt finds no gap in it, and whoever forked with
    the lock in hand gives back the one that was taken.
    """
    setattr(owner, name, make())
    _made.setdefault(owner, {})[name] = make


def _set_again() -> None:
    for owner, makers in list(_made.items()):
        for name, make in makers.items():
            setattr(owner, name, make())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_set_again)
