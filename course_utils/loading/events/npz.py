"""One NumPy archive per event, uncompressed or compressed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np

from course_utils.loading.events.contract import Events, Pulses
from course_utils.loading.events.npy import EventArrays, Parts
from keepfed.files import open_file
from keepfed.measure.spans import stage

_FILES_PER_FOLDER = 1000


class NpzEvents(Events):
    """One .npz archive per event: simple, but each event needs a request and decoding."""

    entry = "npz"

    def path_of(self, index: int) -> str:
        """Return the archive of one event."""
        return f"{self.path}/{npz_name(index)}"

    def _read(self, indices: Sequence[int]) -> list[Pulses]:
        pulses = []
        for index in indices:
            with stage("read"), open_file(self.path_of(index), self.fs) as file:
                content = file.read()  # one request; np.load(path) would send several small ones
            with stage("decode"), np.load(BytesIO(content)) as arrays:
                pulses.append(arrays["pulses"])
        return pulses


def npz_name(index: int) -> str:
    """Return the path of event `index` in the npz folder, such as 002/002345.npz."""
    return f"{index // _FILES_PER_FOLDER:03d}/{index:06d}.npz"


def _write_part(events: EventArrays, block: slice, path: Path, *, deflate: bool) -> None:
    """Write one .npz per event: `pulses`, and its row of the table as `event`."""
    save = np.savez_compressed if deflate else np.savez
    path.mkdir()
    for index in range(block.start, block.stop):
        archive = BytesIO()  # so that a file is one write, instead of 5 writes and 18 seeks
        save(archive, pulses=events[index], event=events.table[index])
        (path / Path(npz_name(index)).name).write_bytes(archive.getvalue())


def _npz(title: str, *, deflate: bool) -> Parts:
    write = partial(_write_part, deflate=deflate)
    return Parts(title, _FILES_PER_FOLDER, name="{:03d}".format, write=write)


write_npz = _npz("npz", deflate=False)
write_npz_deflate = _npz("npz-deflate", deflate=True)
