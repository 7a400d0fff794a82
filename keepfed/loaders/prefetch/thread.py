"""Load the next batches in a thread while the main thread computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class ThreadPrefetcher(Generic[T]):
    """Run ahead of the consumer by at most `depth` items; iterate as often as over the source.

        for batch in ThreadPrefetcher(loader): ...

    Each epoch has a thread of its own. An error of the source is raised in the loop, with the
    traceback of where it happened. Leaving the loop ends the thread, as soon as it has the item
    that it is working on, and closes the iterator of the source.
    """

    def __init__(self, iterable: Iterable[T], depth: int = 2):
        """Start nothing yet: the thread starts with the loop.

        Args:
            iterable: where the items come from; one that gives a new iterator each time gives any
                number of epochs.
            depth: items that may be ready before they are asked for; with the one that the loop
                works on, `depth` + 1 exist at a time.
        """
        if depth < 1:
            raise ValueError(f"A depth of {depth} prefetches nothing; take at least 1.")
        self.iterable, self.depth = iterable, depth

    def __len__(self) -> int:
        return len(cast(Sized, self.iterable))

    def __iter__(self) -> Iterator[T]:
        ready: SimpleQueue[Any] = SimpleQueue()  # (item, error), and None at the end
        free, stopped = Semaphore(self.depth), Event()
        items = iter(self.iterable)  # in this thread: only the main one hears that a worker died
        # a daemon: an iterator that is left hanging half way must not keep Python from ending
        thread = Thread(target=_fill, args=(items, ready, free, stopped), daemon=True)
        thread.start()
        try:
            for item, error in iter(ready.get, None):
                if error is not None:
                    raise error
                free.release()
                yield item
        finally:
            error = None  # its traceback holds this frame: they would keep each other alive
            stopped.set()
            free.release()
            thread.join()
            if hasattr(items, "close"):
                items.close()


def _fill(items: Iterator[Any], ready: SimpleQueue[Any], free: Semaphore, stopped: Event) -> None:
    try:
        while free.acquire() and not stopped.is_set():
            ready.put((next(items), None))
    except StopIteration:
        ready.put(None)
    except BaseException as error:
        ready.put((None, error))
