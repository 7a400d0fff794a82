"""The device interface on a real GPU: a thin layer over torch.

Spans are measured with CUDA events around each copy and step. The events are read when the
recording ends, so recording never makes the host wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch

from keepfed.batches import (
    dense_parts,
    move,
    tensors,
)
from keepfed.measure.spans import Span, SpanLog, current

ROUND_TRIPS = 5  # measurements of an anchor, of which the fastest counts


class CudaDevice:
    """One CUDA device with its streams, its memory and the copies to it."""

    def __init__(self, device: torch.device | None = None):
        """Choose `device`, or the current device of this thread (0 in a new thread)."""
        index = None if device is None else device.index
        self.device = torch.device("cuda", torch.cuda.current_device() if index is None else index)
        self.name = torch.cuda.get_device_name(self.device)
        self._marks: DeviceMarks | None = None

    def __repr__(self) -> str:
        return f"{self.name} ({self.device})"

    @property
    def copy_stream(self) -> torch.cuda.Stream:
        """The stream for prefetched copies, shared by all users of this device."""
        return stream_for("copies", self.device)

    def Event(self, *, enable_timing: bool = False) -> torch.cuda.Event:
        """Make an event. A host that waits for it sleeps instead of polling."""
        return torch.cuda.Event(enable_timing=enable_timing, blocking=True)  # type: ignore[no-untyped-call]

    def stream(self, stream: torch.cuda.Stream | None) -> AbstractContextManager[Any]:
        """Make `stream` the current one of this thread inside the `with` block."""
        return torch.cuda.stream(stream)

    def current_stream(self) -> torch.cuda.Stream:
        """Return the stream that this thread launches on."""
        return torch.cuda.current_stream(self.device)

    def synchronize(self) -> None:
        """Block the host until everything launched is finished."""
        torch.cuda.synchronize(self.device)

    def upload(self, batch: Any, *, non_blocking: bool = False) -> Any:
        """Copy the tensors of `batch` to the device."""
        number = batch_number()
        with self.span("copy", "transfer", number):
            return numbered(move(batch, self.device, non_blocking=non_blocking), number)

    def is_pinned(self, batch: Any) -> bool:
        """Return whether all tensors of `batch` in host memory are pinned."""
        here = (tensor for tensor in tensors(batch) if tensor.device.type == "cpu")
        return all(part.is_pinned() for tensor in here for part in dense_parts(tensor))

    @contextmanager
    def span(self, lane: str, name: str, batch: int) -> Iterator[None]:
        """Record the work that the block launches on the current stream, if a trace is active."""
        trace = current()
        if trace is None:
            yield
            return
        if self._marks is None or self._marks.trace is not trace:
            self._marks = DeviceMarks(trace, self)
        stream, start, end = self.current_stream(), timer(), timer()
        start.record(stream)
        yield
        end.record(stream)
        self._marks.spans.append((lane, name, start, end, batch))


class DeviceMarks:
    """The events of one trace, and two anchors that relate device time to host time."""

    def __init__(self, trace: SpanLog, gpu: CudaDevice):
        self.trace = trace
        self.spans: list[tuple[str, str, torch.cuda.Event, torch.cuda.Event, int]] = []
        self._gpu = gpu
        self._first = self._anchor()
        trace.mention(gpu.name)
        trace.on_close(self.resolve)

    def resolve(self) -> None:
        """Convert the events to spans."""
        self._gpu.synchronize()
        (first, first_ns), (last, last_ns) = self._first, self._anchor()
        length_ms = first.elapsed_time(last)
        for lane, name, start, end, batch in self.spans:
            begin_ns, end_ns = (
                host_time(first.elapsed_time(mark), length_ms, first_ns, last_ns)
                for mark in (start, end)
            )
            self.trace.add(Span(lane, name, begin_ns, end_ns, batch))

    def _anchor(self) -> tuple[torch.cuda.Event, int]:
        """Return an event and the host time at which it completed, from the fastest round trip."""
        trips = [round_trip(self._gpu.device, self.trace.clock) for _ in range(ROUND_TRIPS)]
        _, event, seen_ns = min(trips, key=lambda trip: trip[0])
        return event, seen_ns


@cache
def stream_for(purpose: str, device: torch.device, priority: int = 0) -> torch.cuda.Stream:
    """Return the stream of `device` for `purpose`, always the same: each has a memory pool."""
    return torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]


def round_trip(device: torch.device, clock: Callable[[], int]) -> tuple[int, torch.cuda.Event, int]:
    """Wait for an event on an idle stream. Return the ns of this, the event, and its host time."""
    # programs rarely use streams of high priority, so this one stays idle
    idle, event = stream_for("anchors", device, -1), timer()
    launched_ns = clock()
    event.record(idle)
    event.synchronize()
    seen_ns = clock()
    return seen_ns - launched_ns, event, seen_ns


def timer() -> torch.cuda.Event:
    """Return an event that records the time at which the device reaches it."""
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def host_time(device_ms: float, length_ms: float, first_ns: int, last_ns: int) -> int:
    """Return the host time of an event `device_ms` after the first anchor.

    A second one, `length_ms` later, corrects the drift of the clocks of 0.01 ms per second.
    """
    return first_ns + round(device_ms / length_ms * (last_ns - first_ns))


def numbered(batch: Any, number: int) -> Any:
    """Store the batch number on its tensors, because the loop may already use a later batch."""
    for tensor in tensors(batch):
        tensor._trace_batch = number  # type: ignore[attr-defined]
    return batch


def batch_number(read: Sequence[torch.Tensor] = ()) -> int:
    """Return the number of the batch that contains the first tensor."""
    trace = current()
    default = -1 if trace is None else trace.batch
    return getattr(read[0], "_trace_batch", default) if read else default
