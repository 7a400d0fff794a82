"""Watch one loop, in one line: `for batch in watch(loader)`."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from keepfed.measure.neighbours import Neighbours
from keepfed.measure.watch.timing.failsafe import give_up, has_failed
from keepfed.measure.watch.timing.ring_file import Observation, is_watched, read_all, records_folder

if TYPE_CHECKING:
    from keepfed.measure.picture import Timeline

T = TypeVar("T")


class Watched(Generic[T]):
    """A loader whose loops are timed.

    What else it is asked for, such as `sampler` or `len`, it asks the loader.
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
        if name == "_loader":  # of a copy that is not made yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __repr__(self) -> str:
        from keepfed.measure.watch.report import findings

        return findings(_read_observations(), _others_cores())

    def timeline(self) -> Timeline:
        """Return the picture of the last iterations of the loops of this process."""
        from keepfed.measure.watch.report import timeline

        return timeline(_read_observations())


def watch(loader: Iterable[T]) -> Watched[T]:
    """Return `loader`, watched: what its loops wait for is said when the program ends.

        for batch in watch(loader):

    Nothing else about the loop changes. To read it earlier, keep what is returned and print it. A
    `DataLoader` also tells what its workers do; of anything else that gives batches, only the waits
    are known. `keepfed watch python train.py` does the same for all loaders of a program.
    """
    if not is_watched():
        try:
            records_folder()  # registers its removal first, so that it runs after `_print_report`
            _neighbours()
        except Exception as error:
            give_up(error)
        atexit.unregister(_print_report)
        atexit.register(_print_report)
    return Watched(loader)


@cache
def _neighbours() -> Neighbours:
    """Return what counts the processor time of other programs, from the first call on."""
    return Neighbours()


def _others_cores() -> float:
    return 0.0 if is_watched() else _neighbours().cores()


def _time_loader(loader: Iterable[T]) -> Iterable[T]:
    """Return `loader`, timed unless `keepfed watch` does that already; no batch is taken yet."""
    from keepfed.measure.hook import data_loader_in
    from keepfed.measure.watch.timing import watching

    inner = data_loader_in(loader)
    if inner is None:
        return watching.watch_batches(loader)
    return loader if is_watched() else watching.watch_loader(loader, inner)


def _read_observations() -> list[Observation]:
    """Return what was seen until now."""
    if timers := sys.modules.get(
        "keepfed.measure.watch.timing.step_timer"
    ):  # else nothing was looped over
        timers.write_down()
    return read_all(records_folder())


def _print_report() -> None:
    """Print what was found to stderr."""
    if has_failed():
        return
    try:
        if seen := _read_observations():
            from keepfed.measure.watch.report import findings

            print(f"\n{findings(seen, _others_cores())}", file=sys.stderr)
    except Exception as error:
        give_up(error, "the report could not be made")
