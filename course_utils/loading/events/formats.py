"""Name the file formats of events: a new one is a module that reads and writes it, and a line here.

events = open_events(data_path("events"), "tar")  # after `convert_events data/events-M --to tar`
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from course_utils.loading.events.contract import Events
from course_utils.loading.events.hdf5 import FIT, MISFIT, Hdf5Events, write_hdf5
from course_utils.loading.events.npy import EventArrays, MemmapEvents, write_npy
from course_utils.loading.events.npz import NpzEvents, write_npz, write_npz_deflate
from course_utils.loading.events.parquet import ParquetEvents, write_parquet
from course_utils.loading.events.root import RootEvents, write_root
from course_utils.loading.events.sqlite import SqliteEvents, write_sqlite
from course_utils.loading.events.tar import TarEvents, write_tar


@dataclass(frozen=True)
class Format:
    """A way to keep events."""

    title: str  # how tables and pictures call it
    entry: str  # the file or folder that it makes beside events.parquet
    reader: type[Events]
    write: Callable[[EventArrays, Path], None]


_chunked = partial(write_hdf5, chunks=FIT)
_gzipped = partial(write_hdf5, chunks=FIT, gzip=True)
_misfit = partial(write_hdf5, chunks=MISFIT, gzip=True)
_large = partial(write_parquet, large=True)
FORMATS = {
    "npy": Format("npy, one file", "npy", MemmapEvents, write_npy),
    "npz": Format("npz per event", "npz", NpzEvents, write_npz),
    "npz-deflate": Format("npz per event, deflate", "npz-deflate", NpzEvents, write_npz_deflate),
    "hdf5": Format("HDF5", "events.h5", Hdf5Events, write_hdf5),
    "hdf5-chunked": Format("HDF5, chunks", "events-chunked.h5", Hdf5Events, _chunked),
    "hdf5-gzip": Format("HDF5, chunks, gzip", "events-gzip.h5", Hdf5Events, _gzipped),
    "hdf5-misfit": Format("HDF5, misfit chunks", "events-misfit.h5", Hdf5Events, _misfit),
    "parquet": Format("Parquet", "pulses.parquet", ParquetEvents, write_parquet),
    "parquet-zstd": Format(
        "Parquet, one large group", "pulses-zstd.parquet", ParquetEvents, _large
    ),
    "sqlite": Format("SQLite", "events.db", SqliteEvents, write_sqlite),
    "tar": Format("tar shards", "tar", TarEvents, write_tar),
    "root": Format("ROOT", "events.root", RootEvents, write_root),
}
CONVERTED = [name for name in FORMATS if name != "npy"]  # which they are all made from


def open_events(folder: str | Path, name: str, *, fs: Any = None) -> Events:
    """Return the events of a folder as the dataset that reads this format.

    Args:
        folder: events as make_events writes them.
        name: one of FORMATS: "npy", which is always there, or what `convert_events` has written.
        fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.

    Raises:
        FileNotFoundError: the folder holds no events, or not in this format.
        ValueError: there is no such format.
    """
    if name not in FORMATS:
        raise ValueError(f"There is no format {name!r}; take one of {', '.join(FORMATS)}.")
    return FORMATS[name].reader(folder, fs=fs, entry=FORMATS[name].entry)
