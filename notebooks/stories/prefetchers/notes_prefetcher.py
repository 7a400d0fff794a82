"""Prefetchers that are not right yet, on the way to `CudaPrefetcher`.

`NotesPrefetcher` has the design that a lecture note prints (the code is ours, the idea is not), and
with it ten defects, which `prove_all` shows. The functions below it are the steps between:
each mends one thing, and breaks or leaves another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import Queue
from threading import Thread
from typing import Any

from course_utils.hardware.gpu import Accelerator
from notebooks.stories.prefetchers.bench import Machine


class NotesPrefetcher:
    """A thread copies batches to the device, into a queue from which the loop takes them."""

    def __init__(self, loader: Iterable[Any], devices: Machine, queue_size: int = 3):
        """Start the thread, which asks `loader` for its first batch at once."""
        self.loader, self.devices = loader, devices
        self.queue: Queue[Any] = Queue(queue_size)
        self.thread = Thread(target=self._fill, daemon=True, name="notes prefetcher")
        self.thread.start()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.queue.get, None)

    def _fill(self) -> None:
        for inputs, targets in self.loader:
            gpu = self.devices.current()  # as torch.device("cuda"), without a number
            inputs = gpu.upload(inputs, non_blocking=True)
            targets = gpu.upload(targets, non_blocking=True)
            self.queue.put((inputs, targets))
        self.queue.put(None)  # the end


def default_stream(gpu: Accelerator, batches: Iterable[Any]) -> Iterator[Any]:
    """Copy one batch ahead, on the stream of the steps: right, and nothing is hidden."""
    return _one_ahead(lambda batch: gpu.upload(batch, non_blocking=True), batches)


def side_stream(gpu: Accelerator, batches: Iterable[Any], *, wait: bool = False) -> Iterator[Any]:
    """Copy one batch ahead, on a stream of its own: a step that does not wait reads garbage."""
    copies = gpu.Stream()

    def stage(batch: Any) -> tuple[Any, Any]:
        with gpu.stream(copies):
            return gpu.upload(batch, non_blocking=True), copies.record_event()

    for batch, arrived in _one_ahead(stage, batches):
        if wait:
            gpu.current_stream().wait_event(arrived)
        yield batch
        del batch  # or it would be kept until the copy after the next


# right, until a batch is dropped that is still read
side_stream_with_wait = partial(side_stream, wait=True)


def _one_ahead(stage: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    ready = None
    for batch in batches:
        ready, before = stage(batch), ready
        if before is not None:
            yield before
        del before
    if ready is not None:
        yield ready
