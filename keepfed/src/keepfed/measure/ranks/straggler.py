"""Find the rank that the others wait for, and the stage that makes it late.

Ranks synchronize after every step to average their gradients. A loop marks this meeting with
`stage("wait", lane="other ranks")`. The last rank to arrive does not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from keepfed.formatting import duration, percent, plural
from keepfed.measure.spans import LOADING, OTHERS, SpanLog, compute_spans, reach

DOMINANT_SHARE = 0.5  # minimum share of the waiting for a straggler, and of last arrivals
NOTICED = 0.05  # minimum share of the time spent waiting for a straggler


@dataclass(frozen=True)
class Straggler:
    """The rank that the others wait for, and its slow stage.

    The first meeting does not count, because workers may still be starting.
    """

    meetings: int
    last: Sequence[int]  # number of meetings at which each rank arrived last
    waited_for: Sequence[float]  # share of the time that another rank waits for each rank
    waits: Sequence[float]  # share of the time that each rank waits for others
    stage: str  # stage with the largest difference between the late rank and the others
    own_ns: float  # time of this stage per batch in the late rank
    others_ns: float  # median time of this stage per batch in the other ranks

    @property
    def rank(self) -> int | None:
        """Rank that delays the others, or None."""
        most = max(self.waited_for, default=0.0)
        if most < max(NOTICED, DOMINANT_SHARE * sum(self.waited_for)):
            return None
        rank = list(self.waited_for).index(most)
        return rank if self.last[rank] > DOMINANT_SHARE * self.meetings else None

    def __str__(self) -> str:
        """Return the result as text."""
        if not self.meetings:
            return (
                "No meetings of the ranks were recorded. Mark the wait for the other ranks with "
                f'stage("wait", lane="{OTHERS}").'
            )
        if self.rank is None:
            waits = percent(float(np.mean(self.waits)))
            return f"No rank delays the others. On average, a rank waits {waits} of the time."
        return (
            f"Rank {self.rank} delays the others: it arrives last at {self.last[self.rank]} of "
            f"{plural(self.meetings, 'meeting')}, and\nthe others wait "
            f"{percent(self.waited_for[self.rank])} of the time for it. Per batch it needs "
            f"{duration(self.own_ns)} to {self.stage}, the others {duration(self.others_ns)}."
        )


def find_straggler(traces: Sequence[SpanLog]) -> Straggler:
    """Return the rank that the others wait for.

    `traces` are in the order of the ranks, with times of one clock.
    """
    arrivals = [[span.start_ns for span in trace.spans if span.lane == OTHERS] for trace in traces]
    meetings = min(map(len, arrivals), default=0) - 1
    if meetings < 1:
        nobody = [0.0] * len(traces)
        return Straggler(0, [0] * len(traces), nobody, nobody, "", 0, 0)
    came = np.array([times[: meetings + 1] for times in arrivals], float)  # (ranks, meetings)
    waits = (came.max(0) - came)[:, 1:]
    latest = came.argmax(0)[1:]
    whole = max(reach(trace)[1] for trace in traces) - came[:, 0].max()
    for_whom = np.bincount(latest, waits.sum(0), len(traces)) / max(len(traces) - 1, 1)
    late = int(for_whom.argmax())
    return Straggler(
        meetings,
        np.bincount(latest, minlength=len(traces)).tolist(),
        (for_whom / whole).tolist(),
        (waits.sum(1) / whole).tolist(),
        *_slow_stage(traces, late),
    )


def _slow_stage(traces: Sequence[SpanLog], late: int) -> tuple[str, float, float]:
    """Return the stage in which rank `late` loses most, its time, and that of the others."""
    late_ns = _per_batch(traces[late])
    rest = [_per_batch(trace) for rank, trace in enumerate(traces) if rank != late]
    others_ns = {stage: median([times[stage] for times in rest] or [0.0]) for stage in late_ns}
    stage = max(others_ns, key=lambda name: late_ns[name] - others_ns[name])
    return stage, late_ns[stage], others_ns[stage]


def _per_batch(trace: SpanLog) -> dict[str, float]:
    """Return the time of each stage per batch, in ns."""
    loading = [span for span in trace.spans if span.stage in LOADING]
    times = dict.fromkeys((*LOADING, "compute"), 0.0)
    for span in (*loading, *compute_spans(trace.spans)):
        times[span.stage] += span.duration_ns / max(trace.served, 1)
    return times
