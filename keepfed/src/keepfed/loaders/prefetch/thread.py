"""Prefetch batches in a thread while the main thread computes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from multiprocessing.util import Finalize
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
_PATIENCE_S = 5.0  # for the item that is being loaded when Python exits


class ThreadPrefetcher(Generic[T]):
    """Iterable that prefetches up to `depth` items of a source in a thread.

        for batch in ThreadPrefetcher(loader): ...

    It can be iterated as often as the source. Each epoch uses a new thread. An error in the source
    is raised in the loop, with its original traceback. If the loop is left early, the thread ends
    after its current item, and the iterator of the source is closed.
    """

    def __init__(self, iterable: Iterable[T], depth: int = 2):
        """Store the source. The thread starts with the loop.

        Args:
            iterable: Source of the items. It can serve several epochs if each `iter` call returns a
                new iterator.
            depth: Number of items that may be ready in advance. Together with the item that the
                loop uses, `depth` + 1 items exist at a time.

        Raises:
            ValueError: If `depth` is less than 1.
        """
        if depth < 1:
            raise ValueError(f"`depth` must be at least 1, but is {depth}.")
        self.iterable, self.depth = iterable, depth

    def __len__(self) -> int:
        return len(cast(Sized, self.iterable))

    def __iter__(self) -> Iterator[T]:
        ready: SimpleQueue[Any] = SimpleQueue()  # pairs (item, error), then None at the end
        free, stopped = Semaphore(self.depth), Event()
        items = iter(self.iterable)  # here, because only the main thread learns of dead workers
        # a daemon, so that an unfinished iterator does not stop Python from exiting
        thread = Thread(target=_fill, args=(items, ready, free, stopped), daemon=True)
        thread.start()
        # A thread that outlives the interpreter can abort the process while it uses a tensor.
        at_exit = Finalize(None, _end, (thread, stopped, free, _PATIENCE_S), exitpriority=0)
        try:
            for item, error in iter(ready.get, None):
                if error is not None:
                    raise error
                free.release()
                yield item
        finally:
            error = None  # breaks the cycle of the error's traceback and this frame
            at_exit.cancel()
            _end(thread, stopped, free)
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


def _end(thread: Thread, stopped: Event, free: Semaphore, patience_s: float | None = None) -> None:
    stopped.set()
    free.release()
    thread.join(patience_s)
