"""Save the trace of each rank to a file, and load all of them together.

    save_rank(trace, "traces")               # at the end of the script, in each rank
    ranks = load_ranks("traces")             # afterwards, on any machine
    print(ranks)
    ranks.timeline()

All processes of a machine share one clock, so their spans can be compared. Different machines have
different clocks, so use a separate folder for each machine.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepfed.errors import KeepfedError
from keepfed.formatting import plural
from keepfed.limits import get_rank
from keepfed.measure.exchange import load_chrome, save_chrome
from keepfed.measure.ranks.straggler import Straggler, find_straggler
from keepfed.measure.spans import reach
from keepfed.measure.trace import Trace
from keepfed.reading import read_json, reading

if TYPE_CHECKING:
    from keepfed.measure.picture import Timeline


@dataclass(frozen=True)
class RankTraces:
    """The traces of one run, in the order of its ranks. Times begin with the first span of all."""

    traces: list[Trace]

    @cached_property
    def straggler(self) -> Straggler:
        """Rank that the others wait for."""
        return find_straggler(self.traces)

    @property
    def served(self) -> Counter[object]:
        """Number of times each sample was served on all ranks, empty if it is unknown."""
        ids = [trace.sample_ids for trace in self.traces]
        return Counter() if None in ids else Counter(chain.from_iterable(filter(None, ids)))

    def timeline(self) -> Timeline:
        """Return the timeline of all ranks on one time axis."""
        from keepfed.measure.picture import Timeline  # import only if needed

        return Timeline({f"rank {rank}": trace for rank, trace in enumerate(self.traces)})

    def __str__(self) -> str:
        """Return the number of samples and the straggler as text."""
        samples, distinct = sum(trace.samples for trace in self.traces), len(self.served)
        which = "all distinct." if distinct == samples else f"only {distinct:,} distinct."
        head = f"{plural(len(self.traces), 'rank')} served {samples:,} samples"
        return f"{head}{', ' + which if distinct else '.'}\n{self.straggler}"


def save_rank(trace: Trace, folder: str | Path) -> Path:
    """Write the trace of this rank to a file in `folder`, and return its path."""
    rank, ranks = get_rank()
    return save_chrome(
        trace,
        Path(folder, f"rank-{rank}.json"),
        run=[os.environ.get("TORCHELASTIC_RUN_ID", ""), ranks],  # to ignore files of an older run
        origin_ns=reach(trace)[0],
        served=trace.served,
        samples=trace.samples,
        sample_ids=trace.sample_ids,
    )


def load_ranks(folder: str | Path) -> RankTraces:
    """Load the traces that the ranks of one run saved in `folder`.

    Raises:
        KeepfedError: If the trace of a rank is missing.
    """
    paths, facts = dict[int, Path](), dict[int, dict[str, Any]]()
    for path in Path(folder).glob("rank-*.json"):
        with reading(path, step="Remove it, or write it again with `save_rank`"):
            about, rank = read_json(path)["otherData"], int(path.stem.removeprefix("rank-"))
            whole = {name: int(about[name]) for name in ("origin_ns", "samples")}
            run = [about["run"][0], int(about["run"][1])]
            paths[rank], facts[rank] = path, {**about, **whole, "run": run}
    run = facts[min(facts)]["run"] if facts else ["", 1]
    facts = {rank: about for rank, about in sorted(facts.items()) if about["run"] == run}
    if missing := set(range(run[1])).difference(facts):
        raise KeepfedError(
            f"The trace of rank {min(missing)} is missing in {folder}. End the script with "
            "`save_rank(trace, folder)`, and check that every rank reaches this line."
        )
    first = min(about["origin_ns"] for about in facts.values())
    traces = []
    for rank, about in facts.items():
        trace = load_chrome(paths[rank], begins_ns=about["origin_ns"] - first)
        trace.origin_ns = 0
        trace.served, trace.samples = about["served"], about["samples"]
        trace.sample_ids = about["sample_ids"]
        traces.append(trace)
    return RankTraces(traces)
