"""Write samples in the formats of the course."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import webdataset

from course_utils.stories.peers.peer import Samples

SHARD_MB = 0.5  # size of a tar file, small enough for several shards in a small set


def npz(folder: Path, samples: Samples) -> None:
    """Write one file per sample."""
    for place, sample in enumerate(samples):
        np.savez(folder / f"{place:06d}.npz", pulses=sample)


def tar(folder: Path, samples: Samples) -> None:
    """Write shards of .npy files."""
    per_shard = max(1, round(SHARD_MB * 1e6 / samples[0].nbytes))
    for start in range(0, len(samples), per_shard):
        with webdataset.TarWriter(str(folder / f"{start:06d}.tar")) as writer:
            for place in range(start, min(start + per_shard, len(samples))):
                with BytesIO() as content:
                    np.save(content, samples[place])
                    writer.write({"__key__": f"{place:06d}", "npy": content.getvalue()})


def npy(folder: Path, samples: Samples) -> None:
    """Write one array."""
    np.save(folder / "pulses.npy", samples)


def hdf5(folder: Path, samples: Samples) -> None:
    """Write one HDF5 dataset."""
    with h5py.File(folder / "pulses.h5", "w") as file:
        file["pulses"] = samples


def table(samples: Samples) -> pa.Table:
    """Return the samples as a column of fixed-size lists."""
    return pa.table(
        {"pulses": pa.FixedSizeListArray.from_arrays(samples.reshape(-1), samples[0].size)}
    )
