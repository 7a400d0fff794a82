"""How much of one lane's time is hidden behind another's."""

from __future__ import annotations

from collections.abc import Sequence

from course_utils.measure.summary import Interval, union
from course_utils.measure.trace import Span


def hidden_share(spans: Sequence[Span], *, lane: str = "copy", behind: str = "gpu") -> float:
    """Return the share of `lane`'s time in which `behind` is at work too; 1.0 if it did nothing.

    The first copy of an epoch has no step before it and can hide behind nothing: over n batches of
    a perfect prefetcher this is (n - 1) / n. Leave its span out to judge the others.
    """
    work = [(span.start_ns, span.end_ns) for span in spans if span.lane == lane]
    cover = [(span.start_ns, span.end_ns) for span in spans if span.lane == behind]
    total = _length(work)
    hidden = total + _length(cover) - _length([*work, *cover])
    return hidden / total if total else 1.0


def _length(intervals: list[Interval]) -> int:
    return sum(end - start for start, end in union(intervals))
