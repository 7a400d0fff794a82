"""Write events as one HDF5 file: with chunks that suit the reader, that do not, or with none."""

from pathlib import Path

import h5py
from tqdm import tqdm

from data_scripts.native import Events

FIT = (512, 4)  # 8 KiB: a few events with all that belongs to them
MISFIT = (65536, 1)  # 256 KiB: one column of hundreds of events; an event needs four of them

_ROWS_AT_ONCE = 65536  # whole chunks: one that is written in parts may be compressed for each


def write(
    events: Events, path: Path, *, chunks: tuple[int, int] | None = None, gzip: bool = False
) -> None:
    """Write the datasets `pulses`, `offsets` and `events`.

    Args:
        events: what to write.
        path: the file to make.
        chunks: rows, at most, and columns of a chunk of `pulses`; None: all in one piece.
        gzip: whether to compress the chunks.
    """
    codec = {"compression": "gzip", "shuffle": True} if gzip else {}
    with (
        h5py.File(path, "w") as file,
        tqdm(total=len(events.pulses), desc="hdf5", unit="pulse", disable=None) as bar,
    ):
        file["events"] = events.table
        file["offsets"] = events.offsets
        shape = events.pulses.shape
        if chunks:
            chunks = min(chunks[0], shape[0]), chunks[1]
        pulses = file.create_dataset("pulses", shape, "<f4", chunks=chunks, **codec)
        for first in range(0, len(events.pulses), _ROWS_AT_ONCE):
            rows = events.pulses[first : first + _ROWS_AT_ONCE]
            pulses[first : first + len(rows)] = rows
            bar.update(len(rows))
