"""Prefetchers that are not right yet, on the way to `CudaPrefetcher`.

`NotesPrefetcher` has the design that a lecture note prints (the code is ours, the idea is not), and
with it ten defects, which `prove_all` shows. The functions below it are the steps between:
each mends one thing, and breaks or leaves another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from queue import Queue
from threading import Thread
from typing import Any

from course_utils.hardware.gpu import Accelerator, EmulatedDevices


class NotesPrefetcher:
    """A thread copies batches to the device, into a queue from which the loop takes them."""

    def __init__(self, loader: Iterable[Any], gpus: EmulatedDevices, queue_size: int = 3):
        """Start the thread, which asks `loader` for its first batch at once."""
        self.loader, self.gpus = loader, gpus
        self.queue: Queue[Any] = Queue(queue_size)
        self.thread = Thread(target=self._fill, daemon=True, name="notes prefetcher")
        self.thread.start()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.queue.get, None)

    def _fill(self) -> None:
        for inputs, targets in self.loader:
            gpu = self.gpus.current()  # as torch.device("cuda"), without a number
            inputs = gpu.upload(inputs, non_blocking=True)
            targets = gpu.upload(targets, non_blocking=True)
            self.queue.put((inputs, targets))
        self.queue.put(None)  # the end


def default_stream(gpu: Accelerator, batches: Iterable[Any]) -> Iterator[Any]:
    """Copy one batch ahead, on the stream of the steps: right, and nothing is hidden."""
    ahead = None
    for batch in batches:
        ready, ahead = ahead, gpu.upload(batch, non_blocking=True)
        if ready is not None:
            yield ready
        del ready  # or it would be kept until the copy after the next
    if ahead is not None:
        yield ahead


def side_stream(gpu: Accelerator, batches: Iterable[Any]) -> Iterator[Any]:
    """Copy one batch ahead, on a stream of its own: the step does not wait and reads garbage."""
    copies, ahead = gpu.Stream(), None
    for batch in batches:
        with gpu.stream(copies):
            ready, ahead = ahead, gpu.upload(batch, non_blocking=True)
        if ready is not None:
            yield ready
        del ready
    if ahead is not None:
        yield ahead


def side_stream_with_wait(gpu: Accelerator, batches: Iterable[Any]) -> Iterator[Any]:
    """Let the step wait for its copy too: right, until a batch is dropped that is still read."""
    copies, ahead = gpu.Stream(), None
    for batch in batches:
        with gpu.stream(copies):
            ready, ahead = ahead, (gpu.upload(batch, non_blocking=True), copies.record_event())
        if ready is not None:
            gpu.current_stream().wait_event(ready[1])
            yield ready[0]
        del ready
    if ahead is not None:
        gpu.current_stream().wait_event(ahead[1])
        yield ahead[0]
