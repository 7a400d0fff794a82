"""Write the same events in the format of every peer. The first number of an event is its place."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import webdataset
from numpy.typing import NDArray

from course_utils.loading.records import write_records

SHAPE = 128, 4  # pulses of an event, numbers of a pulse
SHARD = 250  # events of a tar file
GROUP = 1024  # events of a Parquet row group

Pulses = NDArray[np.float32]


def write(folder: Path, n_events: int, n_single: int) -> None:
    """Write all events in one file per format, and the first `n_single` one by one."""
    pulses = np.random.default_rng(0).random((n_events, *SHAPE), np.float32)
    pulses[:, 0, 0] = np.arange(n_events)  # exact up to 2 ** 24
    np.save(folder / "pulses.npy", pulses)
    write_records(folder / "records.npy", {"pulses": pulses})
    with h5py.File(folder / "pulses.h5", "w") as file:
        file["pulses"] = pulses
    flat = pa.FixedSizeListArray.from_arrays(pulses.reshape(-1), pulses[0].size)
    pq.write_table(
        pa.table({"pulses": flat}),
        folder / "pulses.parquet",
        row_group_size=GROUP,
        use_dictionary=False,
        compression="none",
    )
    write_single(folder, pulses[:n_single])


def write_single(folder: Path, pulses: Pulses) -> None:
    """Write one .npz file for each event, and shards of .npy files."""
    (folder / "npz").mkdir()
    for place, event in enumerate(pulses):
        np.savez(folder / f"npz/{place:06d}.npz", pulses=event)
    for start in range(0, len(pulses), SHARD):
        with webdataset.TarWriter(str(folder / f"{start:06d}.tar")) as writer:
            for place in range(start, min(start + SHARD, len(pulses))):
                content = io.BytesIO()
                np.save(content, pulses[place])
                writer.write({"__key__": f"{place:06d}", "npy": content.getvalue()})
