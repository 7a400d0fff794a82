"""Open events by the name of their format, as `convert_events --to` knows it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from course_utils.loading.events.archives import RootEvents, SqliteEvents, TarEvents
from course_utils.loading.events.contract import Events
from course_utils.loading.events.datasets import Hdf5Events, MemmapEvents, NpzEvents, ParquetEvents

READERS: dict[str, Callable[..., Events]] = {
    "npy": MemmapEvents,
    "npz": NpzEvents,
    "npz-deflate": partial(NpzEvents, variant="deflate"),
    "hdf5": Hdf5Events,
    "hdf5-chunked": partial(Hdf5Events, variant="chunked"),
    "hdf5-gzip": partial(Hdf5Events, variant="gzip"),
    "hdf5-misfit": partial(Hdf5Events, variant="misfit"),
    "parquet": ParquetEvents,
    "parquet-zstd": partial(ParquetEvents, variant="zstd"),
    "sqlite": SqliteEvents,
    "tar": TarEvents,
    "root": RootEvents,
}


def open_events(folder: str | Path, name: str, *, fs: Any = None) -> Events:
    """Return the events of a folder as the dataset that reads this format.

    Args:
        folder: events as make_events writes them.
        name: one of READERS: "npy", which is always there, or what `convert_events` has written.
        fs: fsspec file system to read from, such as `slow_storage(...)`; None: local disk.

    Raises:
        FileNotFoundError: the folder holds no events, or not in this format.
        ValueError: there is no such format.
    """
    if name not in READERS:
        raise ValueError(f"There is no format {name!r}; take one of {', '.join(READERS)}.")
    return READERS[name](folder, fs=fs)
