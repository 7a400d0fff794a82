"""Open a file in the process that reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar

F = TypeVar("F")

_inherited: list[Any] = []  # handles of a parent: to close them here could change its file


class LazyFile(Generic[F]):
    """A file that each process opens for itself, when it first asks for it.

        self.events = LazyFile(h5py.File, path, "r")  # in __init__: opens nothing
        pulses = self.events.file["pulses"][first:last]  # in __getitem__

    It goes to a worker without the open file, whatever the start method. Threads of a process share
    one.
    """

    _file: F | None = None
    _opened_by = -1

    def __init__(self, opener: Callable[..., F], /, *args: Any, **kwargs: Any):
        """Remember how to open the file.

        Args:
            opener: a function or class that can be imported, such as open, h5py.File,
                sqlite3.connect, np.load.
            *args: what to call it with.
            **kwargs: the same, by name.

        Raises:
            TypeError: the opener is an open file, or a function that no worker could import.
        """
        name = getattr(opener, "__qualname__", type(opener).__qualname__)
        if not callable(opener):
            raise TypeError(
                f"LazyFile cannot open {name}: give it the function and its arguments, "
                "such as LazyFile(open, path, 'rb')."
            )
        if "<lambda>" in name or "<locals>" in name:
            raise TypeError(
                f"A worker cannot get {name}: give LazyFile a function that is defined with def in "
                "a module, outside of any other function."
            )
        self.opener, self.args, self.kwargs = opener, args, kwargs

    @property
    def file(self) -> F:
        """The file, opened by this very process: a forked worker opens its own."""
        if self._file is None or self._opened_by != os.getpid():
            self._let_go()
            self._file, self._opened_by = self.opener(*self.args, **self.kwargs), os.getpid()
        return self._file

    def close(self) -> None:
        """Close the file in this process; the next use opens it again."""
        self._let_go()

    def _let_go(self) -> None:
        file, opened_by = self._file, self._opened_by
        self._file, self._opened_by = None, -1
        if file is None:
            return
        if opened_by != os.getpid():
            _inherited.append(file)
        elif close := getattr(file, "close", None):  # a memmap has none: it ends with its last view
            close()

    def __getstate__(self) -> dict[str, Any]:
        """Go to another process, or into a copy, without the open file."""
        return {"opener": self.opener, "args": self.args, "kwargs": self.kwargs}

    def __del__(self) -> None:
        if os:  # Python takes modules away when it ends, and then closes files itself
            self._let_go()

    def __repr__(self) -> str:
        """Show what it opens, and whether it is open here."""
        opened = self._file is not None and self._opened_by == os.getpid()
        name = getattr(self.opener, "__qualname__", repr(self.opener))
        what = ", ".join(map(repr, self.args))
        return f"LazyFile({name}, {what}), {'open' if opened else 'not open'} in this process"
