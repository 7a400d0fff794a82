"""Name the file formats of events. A new one is a function and one line in FORMATS."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from data_scripts import as_hdf5, as_npz, as_parquet, as_root, as_sqlite, as_tar
from data_scripts.native import Events


class Format(NamedTuple):
    """How to write events, and the name of the file or folder that this makes."""

    name: str
    write: Callable[[Events, Path], None]


FORMATS = {
    "npz": Format("npz", as_npz.write),
    "npz-deflate": Format("npz-deflate", partial(as_npz.write, deflate=True)),
    "hdf5": Format("events.h5", as_hdf5.write),
    "hdf5-chunked": Format("events-chunked.h5", partial(as_hdf5.write, chunks=as_hdf5.FIT)),
    "hdf5-gzip": Format("events-gzip.h5", partial(as_hdf5.write, chunks=as_hdf5.FIT, gzip=True)),
    "hdf5-misfit": Format(
        "events-misfit.h5", partial(as_hdf5.write, chunks=as_hdf5.MISFIT, gzip=True)
    ),
    "parquet": Format("pulses.parquet", as_parquet.write),
    "parquet-zstd": Format("pulses-zstd.parquet", as_parquet.write_large_group),
    "sqlite": Format("events.db", as_sqlite.write),
    "tar": Format("tar", as_tar.write),
    "root": Format("events.root", as_root.write),
}
