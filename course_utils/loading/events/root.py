"""One ROOT file, the usual format in particle physics: column by column, in baskets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from course_utils.loading.events.contract import PULSE, GroupEvents, Pulses, UnfitFileError
from course_utils.loading.events.labels import EVENT, EVENT_COLUMNS
from course_utils.loading.events.npy import EventArrays
from keepfed.files import open_file
from keepfed.measure.spans import stage


class RootEvents(GroupEvents):
    """One ROOT file with an entry per event. The smallest readable unit is a basket per column."""

    entry = "events.root"

    def _find(self) -> None:
        with self._open(self.path, self.fs) as tree:
            self.edges = np.array(tree.common_entry_offsets(), np.int64)

    @staticmethod
    def _open(path: str, fs: Any) -> Any:
        import uproot

        file = open_file(path, fs)
        try:
            # uproot reads with a single thread, so threads do not move each other's file position.
            tree = uproot.open(file, array_cache=None, object_cache=None)["events"]
            if not hasattr(tree, "common_entry_offsets"):
                raise UnfitFileError(
                    "it contains an RNTuple instead of a TTree. Write it again as a TTree, with "
                    "`write_root`."
                )
            return tree
        except BaseException:
            file.close()
            raise

    def _locate(self, index: int) -> tuple[int, int]:
        group = int(np.searchsorted(self.edges, index, "right")) - 1
        return group, index - int(self.edges[group])

    def _group(self, group: int) -> list[Pulses]:
        entries = dict(zip(("entry_start", "entry_stop"), self.edges[group:][:2], strict=True))
        with stage("read"):
            arrays = self.file.arrays(list(PULSE), library="np", **entries)
        with stage("decode"):
            events = zip(*(arrays[name] for name in PULSE), strict=True)
            return [np.column_stack(event).astype(np.float32, copy=False) for event in events]


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
