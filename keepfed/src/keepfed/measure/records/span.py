"""The record of one interval of work or waiting."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """One interval of work or waiting on one lane.

    Times are nanoseconds of `time.perf_counter_ns`, one clock for all processes of a machine.
    """

    lane: str
    stage: str
    start_ns: int
    end_ns: int
    batch: int = -1  # index of the batch, -1 for a span without a batch

    @property
    def duration_ns(self) -> int:
        """Length of the span in nanoseconds."""
        return self.end_ns - self.start_ns


Row = tuple[str, str, int, int, int]  # the fields of a Span
