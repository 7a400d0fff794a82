"""Registry of file formats for events. A new format is a module and one line here.

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
    """A file format for events."""

    title: str  # name in tables and pictures
    entry: str  # file or folder that it creates next to events.parquet
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
CONVERTED = [name for name in FORMATS if name != "npy"]  # all others are converted from npy


def open_events(folder: str | Path, name: str, *, fs: Any = None) -> Events:
    """Return the dataset that reads the events of a folder in this format.

    Args:
        folder: Folder that make_events has written.
        name: A name from FORMATS: "npy" always exists, others after `convert_events`.
        fs: fsspec file system to read from, such as `slow_storage(...)`. None: local disk.

    Raises:
        FileNotFoundError: If the folder contains no events, or not in this format.
        ValueError: If there is no such format.
    """
    if name not in FORMATS:
        raise ValueError(f"There is no format {name!r}. Choose one of {', '.join(FORMATS)}.")
    return FORMATS[name].reader(folder, fs=fs, entry=FORMATS[name].entry)
