"""Typical wrong answers to the exercises of notebook 05, importable by workers."""

import queue
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info


def place(stream: Any) -> tuple[int, int]:
    """Return the number of the worker and how many there are, as a right attempt finds them."""
    worker = get_worker_info()
    return (worker.id, worker.num_workers) if worker else (0, 1)


class Stream(IterableDataset[Any]):
    """What the exercise gives; each attempt says which shards it reads."""

    def __init__(self, shards: list[Any], rank: int = 0, world_size: int = 1):
        self.shards, self.rank, self.world_size = shards, rank, world_size

    def share(self) -> list[Any]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for shard in self.share():
            yield from shard


class Nested(Stream):
    """Right: first the ranks divide, then the workers of each."""

    def share(self) -> list[Any]:
        worker, workers = place(self)
        return self.shards[self.rank :: self.world_size][worker::workers]


class Everything(Stream):
    def share(self) -> list[Any]:
        return self.shards


class ByWorkerOnly(Stream):
    def share(self) -> list[Any]:
        worker, workers = place(self)
        return self.shards[worker::workers]


class ByRankOnly(Stream):
    def share(self) -> list[Any]:
        return self.shards[self.rank :: self.world_size]


class WithoutNone(Stream):
    def share(self) -> list[Any]:
        worker: Any = get_worker_info()
        return self.shards[worker.id :: worker.num_workers]


class LosesTheTail(Stream):
    def share(self) -> list[Any]:
        worker, workers = place(self)
        number, places = self.rank * workers + worker, self.world_size * workers
        size = len(self.shards) // places
        return self.shards[number * size : (number + 1) * size]


class RoundedUp(Stream):
    def share(self) -> list[Any]:
        worker, workers = place(self)
        number, places = self.rank * workers + worker, self.world_size * workers
        size = -(-len(self.shards) // places)
        return self.shards[number * size : (number + 1) * size]


class StepsByWorkers(Stream):
    def share(self) -> list[Any]:
        worker, workers = place(self)
        return self.shards[self.rank * workers + worker :: workers]


class StartsAtTheSum(Stream):
    def share(self) -> list[Any]:
        worker, workers = place(self)
        return self.shards[self.rank + worker :: self.world_size * workers]


class CountsFromOne(Stream):
    def share(self) -> list[Any]:
        worker, workers = place(self)
        number, places = self.rank * workers + worker, self.world_size * workers
        return self.shards[number + 1 :: places]


class DividesEvents(Stream):
    def __iter__(self) -> Iterator[Any]:
        worker, workers = place(self)
        events = (event for shard in self.shards for event in shard)
        first, step = self.rank * workers + worker, self.world_size * workers
        return islice(events, first, None, step)


class AsksInInit(Stream):
    def __init__(self, shards: list[Any], rank: int = 0, world_size: int = 1):
        super().__init__(shards, rank, world_size)
        self.place = place(self)

    def share(self) -> list[Any]:
        worker, workers = self.place
        return self.shards[self.rank * workers + worker :: self.world_size * workers]


class UsesItUp(Stream):
    def share(self) -> list[Any]:
        worker, workers = place(self)
        number, places = self.rank * workers + worker, self.world_size * workers
        self.shards, share = [], self.shards[number::places]
        return share


class YieldsShards(Stream):
    def __iter__(self) -> Iterator[Any]:
        worker, workers = place(self)
        yield from self.shards[self.rank * workers + worker :: self.world_size * workers]


class Plain:
    """Has an `__iter__`, and is no dataset."""

    def __init__(self, shards: list[Any], rank: int = 0, world_size: int = 1):
        self.shards = shards

    def __iter__(self) -> Iterator[Any]:
        return iter(self.shards)


class Prefetcher:
    """A right prefetcher with a seam for each slip."""

    def __init__(self, source: Any, depth: int = 2):
        self.source, self.depth = source, depth

    def __iter__(self) -> Iterator[Any]:
        ready: queue.Queue[Any] = queue.Queue(self.size())
        stop, end = threading.Event(), object()
        threading.Thread(target=self.fill, args=(ready, stop, end), daemon=True).start()
        try:
            while (item := ready.get()) is not end:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self.leave(stop)

    def size(self) -> int:
        return self.depth

    def leave(self, stop: threading.Event) -> None:
        stop.set()

    def fill(self, ready: "queue.Queue[Any]", stop: threading.Event, end: object) -> None:
        try:
            for item in self.source:
                if not self.send(item, ready, stop):
                    return
        except Exception as error:
            self.send(error, ready, stop)
        self.send(end, ready, stop)

    def send(self, item: Any, ready: "queue.Queue[Any]", stop: threading.Event) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.05)
                return True
            except queue.Full:
                pass
        return False


class Unlimited(Prefetcher):
    def size(self) -> int:
        return 0


class TwiceTheDepth(Prefetcher):
    def size(self) -> int:
        return 2 * self.depth + 2


class AlwaysOne(Prefetcher):
    def size(self) -> int:
        return 1


class NeverStops(Prefetcher):
    def send(self, item: Any, ready: "queue.Queue[Any]", stop: threading.Event) -> bool:
        return super().send(item, ready, threading.Event())


class BlocksInPut(Prefetcher):
    def send(self, item: Any, ready: "queue.Queue[Any]", stop: threading.Event) -> bool:
        ready.put(item)
        return not stop.is_set()


class WaitsForTheThread(Prefetcher):
    """Joins a thread that never hears of the break."""

    def leave(self, stop: threading.Event) -> None:
        for thread in threading.enumerate():
            if getattr(thread, "_target", None) == self.fill:
                thread.join()


class NobodyTells(Prefetcher):
    """An exception ends the thread, and no more comes."""

    def fill(self, ready: "queue.Queue[Any]", stop: threading.Event, end: object) -> None:
        for item in self.source:
            if not self.send(item, ready, stop):
                return
        self.send(end, ready, stop)


class Swallows(Prefetcher):
    def fill(self, ready: "queue.Queue[Any]", stop: threading.Event, end: object) -> None:
        try:
            for item in self.source:
                if not self.send(item, ready, stop):
                    return
        except Exception:
            pass
        self.send(end, ready, stop)


class RaisesAnother(Prefetcher):
    def send(self, item: Any, ready: "queue.Queue[Any]", stop: threading.Event) -> bool:
        if isinstance(item, Exception):
            item = RuntimeError(str(item))
        return super().send(item, ready, stop)


class NoEnd(Prefetcher):
    def fill(self, ready: "queue.Queue[Any]", stop: threading.Event, end: object) -> None:
        super().fill(ready, stop, object())


class EndsAtNone(Prefetcher):
    def __iter__(self) -> Iterator[Any]:
        for item in super().__iter__():
            if item is None:
                return
            yield item


class KeepsTheSource(Prefetcher):
    """Takes the items from an iterator that it keeps for itself."""

    def fill(self, ready: "queue.Queue[Any]", stop: threading.Event, end: object) -> None:
        self.source = iter(self.source)
        super().fill(ready, stop, end)


class HoldsTheIterator(Prefetcher):
    kept: list[Any] = []  # noqa: RUF012  # shared on purpose: that is the slip

    def fill(self, ready: "queue.Queue[Any]", stop: threading.Event, end: object) -> None:
        items = iter(self.source)
        self.kept.append(items)
        try:
            while self.send(next(items), ready, stop):
                pass
        except StopIteration:
            self.send(end, ready, stop)
        except Exception as error:
            self.send(error, ready, stop)


class StartsInInit(Prefetcher):
    """The thread of the lecture: started once, so that only the first epoch has one."""

    def __init__(self, source: Any, depth: int = 2):
        super().__init__(source, depth)
        self.ready: queue.Queue[Any] = queue.Queue(depth)
        self.stop, self.end = threading.Event(), object()
        arguments = (self.ready, self.stop, self.end)
        threading.Thread(target=self.fill, args=arguments, daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        while (item := self.ready.get()) is not self.end:
            yield item


class TakesTurns(Prefetcher):
    """Starts a thread for each item and waits for it."""

    def __iter__(self) -> Iterator[Any]:
        items, found = iter(self.source), []

        def one() -> None:
            found.append(next(items, self))

        while True:
            thread = threading.Thread(target=one, daemon=True)
            thread.start()
            thread.join()
            if found[-1] is self:
                return
            yield found[-1]


class NoThread(Prefetcher):
    def __iter__(self) -> Iterator[Any]:
        yield from self.source


class AllAtOnce(Prefetcher):
    def __iter__(self) -> Iterator[Any]:
        yield from list(self.source)


class Reversed(Prefetcher):
    def __iter__(self) -> Iterator[Any]:
        yield from reversed(list(super().__iter__()))
