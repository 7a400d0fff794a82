"""Write events as one ROOT file, as particle physics keeps them."""

from pathlib import Path

import numpy as np

from data_scripts.blocks import blocks
from data_scripts.catalogue import EVENT
from data_scripts.native import Events

_PULSE_TYPES = {"time": "float32", "charge": "float32", "sensor_id": "int16", "auxiliary": "bool"}


def write(events: Events, path: Path) -> None:
    """Write the tree `events` with an entry per event; its baskets hold EVENTS_AT_ONCE entries.

    The bytes differ from one time to the next, since ROOT notes when a file was written.
    """
    import awkward
    import uproot

    labels = {name: EVENT[name] for name in EVENT.names or ()}
    pulse = ", ".join(f"{name}: {kind}" for name, kind in _PULSE_TYPES.items())
    with uproot.recreate(path, compression=uproot.LZ4(4)) as file:
        tree = file.mktree(
            "events",
            {**labels, "pulse": f"var * {{{pulse}}}"},
            field_name=lambda outer, inner: inner,
        )
        for block, rows in blocks(events, "root"):
            columns = zip(_PULSE_TYPES.items(), events.pulses[rows].T, strict=True)
            flat = awkward.zip({name: column.astype(kind) for (name, kind), column in columns})
            pulses = awkward.unflatten(flat, np.diff(events.offsets)[block])
            tree.extend({**{name: events.table[name][block] for name in labels}, "pulse": pulses})
