"""Watch one loop by changing one line: `for batch in watch(loader)`."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from keepfed.measure.neighbors import Neighbors
from keepfed.measure.watch.program import NO_BATCH
from keepfed.measure.watch.timing.failsafe import give_up, has_failed
from keepfed.measure.watch.timing.ring_file import Observation, is_watched, read_all, records_folder

if TYPE_CHECKING:
    from keepfed.measure.picture import Timeline

T = TypeVar("T")


class Watched(Generic[T]):
    """Wrapper that times the loops over a loader.

    All other attributes, such as `sampler`, and `len` come from the loader.
    """

    def __init__(self, loader: Iterable[T]):
        self._loader = loader

    def __iter__(self) -> Iterator[T]:
        loader = self._loader
        try:
            batches = loader if has_failed() else _time_loader(loader)
        except Exception as error:
            give_up(error)
            batches = loader
        return iter(batches)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        # Stop the recursion while copy or pickle builds an object that has no `_loader` yet.
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __repr__(self) -> str:
        return _report() or NO_BATCH

    def timeline(self) -> Timeline:
        """Return the timeline of the last iterations in this process."""
        from keepfed.measure.watch.timeline import timeline

        return timeline(_read_observations())


def watch(loader: Iterable[T]) -> Watched[T]:
    """Return `loader` with timed loops, and print a report when the program ends.

        for batch in watch(loader):

    The rest of the loop stays the same. To read the report earlier, print the returned object. For
    a `DataLoader`, the report includes the work of its workers. For any other iterable, it includes
    only the waits. `keepfed watch python train.py` watches all loaders of a program.
    """
    if not is_watched():
        try:
            # Register the removal of the folder first. Exit handlers run in reverse order, so the
            # folder still exists during `_print_report`.
            records_folder()
            _neighbors()
        except Exception as error:
            give_up(error)
        atexit.unregister(_print_report)
        atexit.register(_print_report)
    return Watched(loader)


@cache
def _neighbors() -> Neighbors:
    """Return the counter for the CPU time of other programs, started at the first call."""
    return Neighbors()


def _others_cores() -> float:
    return 0.0 if is_watched() else _neighbors().cores()


def _time_loader(loader: Iterable[T]) -> Iterable[T]:
    """Return `loader` with a timer, unless `keepfed watch` already times it."""
    from keepfed.measure.hook import data_loader_in
    from keepfed.measure.watch.timing import watching

    inner = data_loader_in(loader)
    if inner is None:
        return watching.watch_batches(loader)
    return loader if is_watched() else watching.watch_loader(loader, inner)


def _read_observations() -> list[Observation]:
    """Return the figures of all loops so far."""
    # Without this module, no loop has started yet.
    if timers := sys.modules.get("keepfed.measure.watch.timing.step_timer"):
        timers.write_down()
    return read_all(records_folder())


def _report() -> str:
    """Return the report of all loops so far, or "" if there is none."""
    from keepfed.measure.watch.report import as_text
    from keepfed.measure.watch.watched_loop import watched_loops

    loops = watched_loops(_read_observations(), _others_cores())
    return as_text(loops) if loops else ""


def _print_report() -> None:
    """Print the report to stderr."""
    if has_failed():
        return
    try:
        if report := _report():
            print(f"\n{report}", file=sys.stderr)
    except Exception as error:
        give_up(error, "Could not create the report")
