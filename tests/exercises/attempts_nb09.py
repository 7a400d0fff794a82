"""Attempts at the prefetcher of notebook 09: right ones, and one slip each."""

import threading
from collections import deque
from collections.abc import Iterator
from queue import Empty, Queue
from typing import Any

from course_utils.hardware.gpu import leaves


class Right:
    """Right, with a seam for each slip."""

    def __init__(self, loader: Any, devices: Any, depth: int = 1):
        self.loader, self.depth = loader, depth
        self.gpu = devices.current()
        self.copies = self.gpu.Stream()

    def __iter__(self) -> Iterator[Any]:
        staged, error = deque[Any](), None
        batches = iter(self.loader)
        while error is None or staged:
            while error is None and len(staged) <= self.depth:
                try:
                    staged.append(self.stage(next(batches)))
                except Exception as caught:
                    error = caught
            if staged:
                yield self.hand_over(*staged.popleft())
        if not isinstance(error, StopIteration):
            raise error

    def stage(self, batch: Any) -> tuple[Any, Any]:
        with self.gpu.stream(self.copies):
            return self.gpu.upload(batch, non_blocking=True), self.copies.record_event()

    def hand_over(self, batch: Any, arrived: Any) -> Any:
        user = self.gpu.current_stream()
        user.wait_event(arrived)
        for leaf in leaves(batch):
            if hasattr(leaf, "record_stream"):
                leaf.record_stream(user)
        return batch


class CopiesWaitForSteps(Right):
    """Right without record_stream: a copy waits for all steps that were launched before it."""

    def stage(self, batch: Any) -> tuple[Any, Any]:
        self.copies.wait_stream(self.gpu.current_stream())
        return super().stage(batch)

    def hand_over(self, batch: Any, arrived: Any) -> Any:
        self.gpu.current_stream().wait_event(arrived)
        return batch


class HostWaits(Right):
    """Right: the program itself waits for a copy that had a whole step to arrive."""

    def hand_over(self, batch: Any, arrived: Any) -> Any:
        arrived.synchronize()
        return super().hand_over(batch, arrived)


class Threaded(Right):
    """Right with a thread, which may copy when the loop has taken a batch."""

    def __iter__(self) -> Iterator[Any]:
        queue: Queue[Any] = Queue()
        stop, room = threading.Event(), threading.Semaphore(self.depth)
        thread = threading.Thread(target=self.fill, args=(queue, stop, room), daemon=True)
        thread.start()
        try:
            while True:
                staged, error = queue.get()
                room.release()
                if error is not None:
                    raise error
                if staged is None:
                    return
                yield self.hand_over(*self.only(staged))
        finally:
            stop.set()
            room.release()
            thread.join()

    def fill(self, queue: "Queue[Any]", stop: Any, room: Any) -> None:
        try:
            for batch in self.loader:
                room.acquire()
                if stop.is_set():
                    return
                queue.put(([self.stage(batch)], None))
            queue.put((None, None))
        except Exception as error:
            queue.put((None, error))

    @staticmethod
    def only(staged: list[Any]) -> Any:
        return staged.pop()  # so that no variable of __iter__ keeps the batch


class Notes:
    """The design of the notes, in our words: all its defects at once."""

    def __init__(self, loader: Any, devices: Any, depth: int = 3):
        self.loader, self.devices = loader, devices
        self.queue: Queue[Any] = Queue(3)
        threading.Thread(target=self.fill, daemon=True).start()

    def fill(self) -> None:
        for inputs, targets in self.loader:
            gpu = self.devices.current()
            both = (
                gpu.upload(inputs, non_blocking=True),
                gpu.upload(targets, non_blocking=True),
            )
            self.queue.put(both)
        self.queue.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.queue.get, None)


class NotesForAnyBatch(Notes):
    """The same, but for batches of one tensor too, so that other defects can be seen."""

    def fill(self) -> None:
        for batch in self.loader:
            self.queue.put(self.devices.current().upload(batch, non_blocking=True))
        self.queue.put(None)


class SwallowsErrors(Right):
    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
        except Exception:
            return


class ErrorOvertakes(Right):
    def __iter__(self) -> Iterator[Any]:
        staged = deque[Any]()
        for batch in self.loader:
            staged.append(self.stage(batch))
            if len(staged) > self.depth:
                yield self.hand_over(*staged.popleft())
        while staged:
            yield self.hand_over(*staged.popleft())


class AnotherError(Right):
    def __iter__(self) -> Iterator[Any]:
        try:
            yield from super().__iter__()
        except Exception as error:
            raise RuntimeError("prefetching failed") from error


class ThreadDiesSilently(Threaded):
    def fill(self, queue: "Queue[Any]", stop: Any, room: Any) -> None:
        try:
            for batch in self.loader:
                room.acquire()
                if stop.is_set():
                    return
                queue.put(([self.stage(batch)], None))
        except Exception:
            return
        queue.put((None, None))


class OneEpoch(Right):
    """An iterator that is made once."""

    def __init__(self, loader: Any, devices: Any, depth: int = 1):
        super().__init__(loader, devices, depth)
        self.batches = super().__iter__()

    def __iter__(self) -> Iterator[Any]:
        return self.batches


class OneEpochThread(Threaded):
    """A thread that is started by the first loop, and never again."""

    queue: "Queue[Any] | None" = None

    def __iter__(self) -> Iterator[Any]:
        if self.queue is None:
            self.queue, self.room = Queue(), threading.Semaphore(self.depth)
            threading.Thread(
                target=self.fill, args=(self.queue, threading.Event(), self.room), daemon=True
            ).start()
        while True:
            staged, error = self.queue.get()
            self.room.release()
            if error is not None:
                raise error
            if staged is None:
                return
            yield self.hand_over(*self.only(staged))


class StreamPerEpoch(Right):
    def __iter__(self) -> Iterator[Any]:
        self.copies = self.gpu.Stream()
        return super().__iter__()


class LeavesThread(Threaded):
    """Right as long as nobody leaves the loop."""

    def __iter__(self) -> Iterator[Any]:
        queue: Queue[Any] = Queue()
        room = threading.Semaphore(self.depth)
        threading.Thread(
            target=self.fill, args=(queue, threading.Event(), room), daemon=True
        ).start()
        while True:
            staged, error = queue.get()
            room.release()
            if error is not None:
                raise error
            if staged is None:
                return
            yield self.hand_over(*self.only(staged))


class KeepsLoaderOpen(Right):
    def __iter__(self) -> Iterator[Any]:
        loader, self.open = self.loader, iter(self.loader)
        self.loader = self.open
        try:
            yield from super().__iter__()
        finally:
            self.loader = loader
            kept.append(self.open)


kept: list[Any] = []


class KeepsStaged(Right):
    def stage(self, batch: Any) -> tuple[Any, Any]:
        self.last = super().stage(batch)
        kept.append(self)
        return self.last


class JoinsForEver(LeavesThread):
    """Waits, on leaving, for a thread that waits for room."""

    def __iter__(self) -> Iterator[Any]:
        before = set(threading.enumerate())
        try:
            yield from super().__iter__()
        finally:
            for thread in set(threading.enumerate()) - before:
                thread.join()


class BeginsAtOnce(Right):
    """Has asked for the first batch before the loop begins."""

    def __init__(self, loader: Any, devices: Any, depth: int = 1):
        super().__init__(loader, devices, depth)
        self.batches = iter(loader)
        self.first: Any = self.stage(next(self.batches))

    def __iter__(self) -> Iterator[Any]:
        if self.first is None:
            yield from super().__iter__()
            return
        staged, self.first = deque([self.first]), None
        for batch in self.batches:
            staged.append(self.stage(batch))
            yield self.hand_over(*staged.popleft())
        while staged:
            yield self.hand_over(*staged.popleft())


class LastFirst(Right):
    def __iter__(self) -> Iterator[Any]:
        staged = [self.stage(batch) for batch in self.loader]
        while staged:
            yield self.hand_over(*staged.pop())


class LosesTheLast(Right):
    def __iter__(self) -> Iterator[Any]:
        staged = deque[Any]()
        for batch in self.loader:
            staged.append(self.stage(batch))
            if len(staged) > self.depth:
                yield self.hand_over(*staged.popleft())


class PairsOnly(Right):
    def stage(self, batch: Any) -> tuple[Any, Any]:
        if isinstance(batch, dict):
            inputs, targets = batch
            batch = inputs, targets
        return super().stage(batch)


class PairsInThread(Threaded):
    """A pair is expected in a thread that tells nobody of its error."""

    def fill(self, queue: "Queue[Any]", stop: Any, room: Any) -> None:
        for batch in self.loader:
            if isinstance(batch, dict):
                return
            room.acquire()
            if stop.is_set():
                return
            queue.put(([self.stage(batch)], None))
        queue.put((None, None))


class TensorsOnly(Right):
    """Hands over a list of the tensors of a batch."""

    def hand_over(self, batch: Any, arrived: Any) -> Any:
        batch = super().hand_over(batch, arrived)
        if not isinstance(batch, dict):
            return batch
        return [leaf for leaf in leaves(batch) if hasattr(leaf, "record_stream")]


class DeviceOfTheThread(Threaded):
    def __init__(self, loader: Any, devices: Any, depth: int = 1):
        super().__init__(loader, devices, depth)
        self.devices = devices

    def fill(self, queue: "Queue[Any]", stop: Any, room: Any) -> None:
        gpu = self.devices.current()
        if gpu is not self.gpu:
            self.gpu, self.copies = gpu, gpu.Stream()
        super().fill(queue, stop, room)


class NoEvent(Right):
    def hand_over(self, batch: Any, arrived: Any) -> Any:
        return batch


class NoRecordStream(Right):
    def hand_over(self, batch: Any, arrived: Any) -> Any:
        self.gpu.current_stream().wait_event(arrived)
        return batch


class QueueOfThree(Threaded):
    def __init__(self, loader: Any, devices: Any, depth: int = 1):
        super().__init__(loader, devices, depth + 3)


class KeepsTheLast(Right):
    """A variable holds the batch that the loop has dropped."""

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():  # noqa: UP028  # the variable is the slip
            yield batch


class WaitsForAllCopies(Right):
    def hand_over(self, batch: Any, arrived: Any) -> Any:
        self.gpu.current_stream().wait_stream(self.copies)
        return super().hand_over(batch, arrived)


class DefaultStream(Right):
    def stage(self, batch: Any) -> tuple[Any, Any]:
        uploaded = self.gpu.upload(batch, non_blocking=True)
        return uploaded, self.gpu.current_stream().record_event()


class WhenAsked(Right):
    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield self.hand_over(*self.stage(batch))


class Drained(Right):
    """Hangs on the way out of every epoch."""

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        try:
            Queue[Any]().get(timeout=5)
        except Empty:
            return
