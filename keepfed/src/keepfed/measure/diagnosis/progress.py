"""Show what a long measurement is doing, in one line that changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Show = Callable[[str], None]


@contextmanager
def progress(seconds: float) -> Iterator[Show]:
    """Yield a function that shows what is measured, on a terminal or in a notebook.

    The line disappears at the end. `seconds` is the expected duration, shown next to the text.
    """
    write, begun = _writer(), time.perf_counter()
    try:
        yield lambda text: write(
            f"keepfed measures {text} ({time.perf_counter() - begun:.0f} of {seconds:.0f} s)"
        )
    finally:
        write("")


def _writer() -> Show:
    """Return a function that replaces a line, or that does nothing without a reader."""
    if sys.stderr is not None and sys.stderr.isatty():
        return lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    ipython = sys.modules.get("IPython")
    if ipython is None or not hasattr(ipython.get_ipython(), "kernel"):
        return lambda text: None
    handle = ipython.display.display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: handle.update({"text/plain": text}, raw=True)
