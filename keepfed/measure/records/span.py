"""One stretch of work, or waiting."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """One stretch of work (or waiting) of one lane.

    Times are `time.perf_counter_ns()` nanoseconds: one clock for all processes of a machine.
    """

    lane: str
    stage: str
    start_ns: int
    end_ns: int
    batch: int = -1  # -1: belongs to no batch

    @property
    def duration_ns(self) -> int:
        """Length of the span in nanoseconds."""
        return self.end_ns - self.start_ns


Row = tuple[str, str, int, int, int]  # the fields of a Span
