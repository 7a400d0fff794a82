"""Keep the trace of each rank in a file, and look at all of them together.

    save_rank(trace, "traces")               # at the end of the script, in each rank
    ranks = load_ranks("traces")             # afterwards, wherever you look at it
    print(ranks)
    ranks.timeline()

All processes of a machine have one clock, so that their spans can be compared. Those of another
machine have another one: there, give each machine a folder.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from torch import distributed

from keepfed.errors import KeepfedError
from keepfed.measure.exchange import load_chrome, save_chrome
from keepfed.measure.ranks.straggler import Straggler, find_straggler
from keepfed.measure.spans import reach
from keepfed.measure.trace import Trace
from keepfed.words import plural

if TYPE_CHECKING:
    from keepfed.measure.picture import Timeline


@dataclass(frozen=True)
class RankTraces:
    """The traces of one run in the order of its ranks; their times begin with the first of them."""

    traces: list[Trace]

    @cached_property
    def straggler(self) -> Straggler:
        """Whom the others wait for."""
        return find_straggler(self.traces)

    @property
    def served(self) -> Counter[object]:
        """How often each sample was served, on all ranks together; empty if that is not known."""
        ids = [trace.sample_ids for trace in self.traces]
        return Counter() if None in ids else Counter(one for own in ids for one in own or ())

    def timeline(self) -> Timeline:
        """Return all ranks below each other, on one time axis."""
        from keepfed.measure.picture import Timeline  # drawing is loaded when one draws

        return Timeline({f"rank {rank}": trace for rank, trace in enumerate(self.traces)})

    def __str__(self) -> str:
        """Say what was served, and who holds up whom."""
        samples, distinct = sum(trace.samples for trace in self.traces), len(self.served)
        which = "all distinct." if distinct == samples else f"only {distinct:,} distinct."
        head = f"{plural(len(self.traces), 'rank')} served {samples:,} samples"
        return f"{head}{', ' + which if distinct else '.'}\n{self.straggler}"


def save_rank(trace: Trace, folder: str | Path) -> Path:
    """Write the trace of this rank into `folder` and return its path."""
    rank, ranks = 0, 1
    if distributed.is_initialized():
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return save_chrome(
        trace,
        folder / f"rank-{rank}.json",
        run=[os.environ.get("TORCHELASTIC_RUN_ID", ""), ranks],  # an older one may lie there too
        origin_ns=reach(trace)[0],
        served=trace.served,
        samples=trace.samples,
        sample_ids=trace.sample_ids,
    )


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("rank-"))


def load_ranks(folder: str | Path) -> RankTraces:
    """Return what the ranks of one run on this machine saved in `folder`.

    Raises:
        KeepfedError: a rank left nothing.
    """
    told = {
        path: json.loads(path.read_text("utf-8"))["otherData"]
        for path in sorted(Path(folder).glob("rank-*.json"), key=_number)
    }
    run = next(iter(told.values()))["run"] if told else []
    told = {path: about for path, about in told.items() if about["run"] == run}
    _, size = run or ("", 1)
    if missing := set(range(size)).difference(map(_number, told)):
        raise KeepfedError(
            f"Rank {min(missing)} left no trace in {folder}; end the script with "
            "save_rank(trace, folder), and see that each rank gets there."
        )
    first = min(about["origin_ns"] for about in told.values())
    traces = []
    for path, about in told.items():
        trace = load_chrome(path, begins_ns=about["origin_ns"] - first)
        trace.origin_ns = 0
        trace.served, trace.samples = about["served"], about["samples"]
        trace.sample_ids = about["sample_ids"]
        traces.append(trace)
    return RankTraces(traces)
