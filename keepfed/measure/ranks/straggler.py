"""Find the rank that the others wait for, and the stage that makes it late.

Ranks meet after every step, to average their gradients. A loop marks that with
`stage("wait", lane="other ranks")`, and who comes last to a meeting waits for nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from keepfed.measure.spans import LOADING, OTHERS, SpanLog, compute_spans, reach
from keepfed.words import duration, percent, plural

DOMINANT_SHARE = 0.5  # of the waiting is for one rank, and of the meetings it is last to
NOTICED = 0.05  # of the time is waited


@dataclass(frozen=True)
class Straggler:
    """Who was waited for; the first meeting is left out, to which workers may be starting."""

    meetings: int
    last: Sequence[int]  # by rank: to how many meetings it came last
    waited_for: Sequence[float]  # by rank: share of its time that another rank waits for it
    waits: Sequence[float]  # by rank: share of its time that it waits for others
    stage: str  # which takes the late rank longer than the others, by most
    own_ns: float  # that this stage takes it, for a batch
    others_ns: float  # that it takes the others, in the middle

    @property
    def rank(self) -> int | None:
        """The rank that holds up the others; None if none does."""
        most = max(self.waited_for, default=0.0)
        rank = list(self.waited_for).index(most) if self.waited_for else 0
        if most < max(NOTICED, DOMINANT_SHARE * sum(self.waited_for)):
            return None
        return rank if self.last[rank] > DOMINANT_SHARE * self.meetings else None

    def __str__(self) -> str:
        """Say it in a few lines."""
        if not self.meetings:
            return f'The ranks never met: mark that with stage("wait", lane="{OTHERS}").'
        if self.rank is None:
            waits = percent(float(np.mean(self.waits)))
            return f"No rank holds up the others; on average one waits {waits} of the time."
        return (
            f"Rank {self.rank} holds up the others: it comes last to {self.last[self.rank]} of "
            f"{plural(self.meetings, 'meeting')}, and\nthey wait "
            f"{percent(self.waited_for[self.rank])} of the time for it. For a batch it needs "
            f"{duration(self.own_ns)} to {self.stage}, the others {duration(self.others_ns)}."
        )


def find_straggler(traces: Sequence[SpanLog]) -> Straggler:
    """Return whom the ranks wait for; `traces` are theirs, on one clock, in their order."""
    arrivals = [[span.start_ns for span in trace.spans if span.lane == OTHERS] for trace in traces]
    meetings = min(map(len, arrivals), default=0) - 1
    if meetings < 1:
        nobody = [0.0] * len(traces)
        return Straggler(0, [0] * len(traces), nobody, nobody, "", 0, 0)
    came = np.array([own[: meetings + 1] for own in arrivals], float)  # (ranks, meetings)
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
    """Return the stage in which `late` loses most against the others, and both times."""
    taken = [_per_batch(trace) for trace in traces]
    others = {
        stage: median([own[stage] for rank, own in enumerate(taken) if rank != late] or [0.0])
        for stage in taken[late]
    }
    stage = max(others, key=lambda name: taken[late][name] - others[name])
    return stage, taken[late][stage], others[stage]


def _per_batch(trace: SpanLog) -> dict[str, float]:
    """Return how long each stage takes a batch, in ns."""
    spans = [span for span in trace.spans if span.stage in LOADING]
    taken = dict.fromkeys((*LOADING, "compute"), 0.0)
    for span in (*spans, *compute_spans(trace.spans)):
        taken[span.stage] += span.duration_ns / max(trace.served, 1)
    return taken
