"""Load the next batches in a thread while the main thread computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class ThreadPrefetcher(Generic[T]):
    """Run ahead of the consumer by at most `depth` items; iterate as often as over the source.

        for batch in ThreadPrefetcher(loader): ...

    Each epoch has a thread of its own. An error of the source is raised in the loop, with the
    traceback of where it happened. Leaving the loop ends the thread, once it has the item that it
    is working on, and closes the iterator of the source.
    """

    def __init__(self, iterable: Iterable[T], depth: int = 2):
        """Start nothing yet: the thread starts with the loop.

        Args:
            iterable: where the items come from; one that gives a new iterator each time gives any
                number of epochs.
            depth: items that may be ready before they are asked for. With the one that the loop
                works on, `depth` + 1 exist at a time.
        """
        if depth < 1:
            raise ValueError(f"A prefetcher of depth {depth} prefetches nothing; take at least 1.")
        self.iterable, self.depth = iterable, depth

    def __len__(self) -> int:
        return len(cast(Sized, self.iterable))

    def __iter__(self) -> Iterator[T]:
        ready: SimpleQueue[_Message[T]] = SimpleQueue()
        free, stopped = Semaphore(self.depth), Event()
        # a daemon: an iterator that was left half way must not keep Python from ending
        thread = Thread(target=self._fill, args=(ready, free, stopped), daemon=True)
        thread.start()
        try:
            while (message := ready.get()) is not None:
                item, error = message
                if error is not None:
                    raise error
                free.release()
                yield cast(T, item)
        finally:
            stopped.set()
            free.release()
            thread.join()

    def _fill(self, ready: SimpleQueue[_Message[T]], free: Semaphore, stopped: Event) -> None:
        raise NotImplementedError


_Message = tuple[T | None, BaseException | None] | None
