"""One ROOT file, the usual format in particle physics: column by column, in baskets."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Any

import numpy as np

from course_utils.loading.events.contract import PULSE, GroupEvents, Pulses
from course_utils.loading.events.labels import EVENT, EVENT_COLUMNS
from course_utils.loading.events.npy import EventArrays
from course_utils.loading.root_files import cluster_edges, read_entries
from keepfed.files import open_file


class RootEvents(GroupEvents):
    """One ROOT file with an entry per event. The smallest readable unit is a basket per column."""

    entry = "events.root"

    def _find(self) -> None:
        with self._open(self.path, self.fs) as tree:
            self.edges = cluster_edges(tree, list(PULSE))

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        import uproot

        file = open_file(path, fs)
        try:
            # uproot reads with a single thread, so threads do not move each other's file position.
            return uproot.open(file, array_cache=None, object_cache=None)["events"]
        except BaseException:
            file.close()
            raise

    def _locate(self, index: int) -> tuple[int, int]:
        group = bisect_right(self.edges, index) - 1
        return group, index - self.edges[group]

    def _group(self, group: int) -> list[Pulses]:
        start, stop = self.edges[group : group + 2]
        entries = read_entries(self.file, list(PULSE), [], start, stop)
        return np.split(entries.values, entries.offsets[1:-1])


def write_root(events: EventArrays, path: Path) -> None:
    """Write the tree `events` with an entry per event. A basket has EVENTS_AT_ONCE entries.

    The bytes differ on each call, because ROOT stores the time of writing.
    """
    import awkward
    import uproot

    labels = {name: EVENT[name] for name in EVENT_COLUMNS}
    pulse = ", ".join(f"{name}: {kind}" for name, kind in PULSE.items())
    with uproot.recreate(path, compression=uproot.LZ4(4)) as file:
        tree = file.mktree(
            "events",
            {**labels, "pulse": f"var * {{{pulse}}}"},
            field_name=lambda outer, inner: inner,
        )
        for block, rows in events.blocks("root"):
            columns = zip(PULSE.items(), events.pulses[rows].T, strict=True)
            flat = awkward.zip({name: column.astype(kind) for (name, kind), column in columns})
            pulses = awkward.unflatten(flat, np.diff(events.offsets)[block])
            tree.extend({**{name: events.table[name][block] for name in labels}, "pulse": pulses})
