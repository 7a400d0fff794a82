"""Write events as tar shards for webdataset, and where in its shard each event is."""

import tarfile
from pathlib import Path

import numpy as np

from data_scripts.blocks import blocks
from data_scripts.native import Events

EVENTS_PER_SHARD = 250


def write(events: Events, path: Path) -> None:
    """Write events-00000.tar and so on, with the members 000123.json and 000123.npy of an event.

    Beside them is index.npy, int64 (events, 3): the shard, and where in it the .npy begins and how
    many bytes it has.
    """
    import webdataset  # brings torch along

    path.mkdir()
    places = []
    names = events.table.dtype.names or ()
    for shard, (block, _) in enumerate(blocks(events, "tar", size=EVENTS_PER_SHARD)):
        target = path / f"events-{shard:05d}.tar"
        with target.open("wb") as file, webdataset.TarWriter(file, mtime=0) as writer:
            for index in range(block.start, block.stop):
                labels = dict(zip(names, events.table[index].item(), strict=True))
                pulses = np.asarray(events[index])
                writer.write({"__key__": f"{index:06d}", "json": labels, "npy": pulses})
        with tarfile.open(target) as archive:
            found = [member for member in archive if member.name.endswith(".npy")]
        places += [(shard, member.offset_data, member.size) for member in found]
    np.save(path / "index.npy", np.array(places, np.int64))
