"""Bound the steps of a loop that does not mark them, so that any loop can be summarized and drawn.

The main process runs the body of the loop from a batch to the next request. CUDA continues while
the process does something else, so events show when the device reached both.
"""

from __future__ import annotations

from keepfed.measure.hook.device_clock import DeviceClock, device_in_use
from keepfed.measure.records import Row
from keepfed.measure.spans import AT_MOST, OTHERS, SpanLog, near, outside, union


class StepBounds:
    """The time from each batch to the next request, on the host and on the CUDA device."""

    def __init__(self, trace: SpanLog):
        self._trace = trace
        self._batch: tuple[int, int] | None = None  # arrival of the batch in ns, and its number
        self._host: list[tuple[int, int, int]] = []  # arrival, next request, number
        self._device: list[Row] = []
        self._clock = DeviceClock(self._add_device_times, trace.clock)
        trace.on_close(lambda: trace.on_close(self._add))  # after other actions have added steps

    def asked(self) -> None:
        """Mark that the loop asks for a batch, or that it ends."""
        if self._batch is not None:
            got_ns, number = self._batch
            self._host.append((got_ns, self._trace.clock(), number))
            self._batch = None
        if device_in_use():
            self._clock.asked()

    def got(self, number: int) -> None:
        """Mark that the loop received the batch `number`."""
        self._clock.got(number)
        self._batch = self._trace.clock(), number

    def _add(self) -> None:
        """Add the bounds to the trace, if nothing else in it says when steps computed."""
        if self._batch is not None:
            self.asked()
        self._clock.finish()
        if any(stage == "compute" for _, stage, *_ in self._trace.rows):
            return
        # After an error, the device was only measured in a part of the loop.
        if rows := (self._clock.enabled and self._device) or self._unmarked():
            self._trace.rows += rows
            self._trace.steps_are = "bounds"
            self._trace.mention(AT_MOST)

    def _unmarked(self) -> list[Row]:
        """Return the host's time without its parts that have a mark, such as a copy."""
        lanes = self._trace.lane, OTHERS
        marked = union((start, end) for lane, _, start, end, _ in self._trace.rows if lane in lanes)
        return [
            (self._trace.lane, "compute", *part, number)
            for got_ns, asked_ns, number in self._host
            for part in outside((got_ns, asked_ns), near((got_ns, asked_ns), marked))
        ]

    def _add_device_times(self, place: int, _idle: float, work_ns: float, ended_ns: float) -> None:
        self._device.append(("gpu", "compute", round(ended_ns - work_ns), round(ended_ns), place))
