"""Count the cost of reading a slab and a cube of a volume with a given chunk shape.

    print(try_chunks((1, 192, 192)))

Each chunk carries a checksum, so HDF5 must read complete chunks, as it does with compression. The
chunk cache of HDF5 is off, because the small volume would fit into it, and real volumes do not.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from course_utils.hardware.storage import SlowFileSystem, counting_storage

SHAPE = (64, 192, 192)  # shape of the volume: z, y, x
SLAB = 4  # planes per slab
CUBE = 48  # edge of the cube
READS = 8  # of each kind

Shape = tuple[int, int, int]
Place = tuple[slice, ...]


class ChunkCost(NamedTuple):
    """The mean cost of a read."""

    requests: float
    amplification: float  # bytes read per byte needed

    def __str__(self) -> str:
        return f"{self.requests:,.0f} requests, {self.amplification:.2f} bytes read per byte needed"


class ChunkTrial(NamedTuple):
    """The costs of both kinds of reads with one chunk shape."""

    chunks: Shape
    slab: ChunkCost  # volume[z : z + SLAB]
    cube: ChunkCost  # CUBE voxels along each axis, at random positions

    def __str__(self) -> str:
        return f"chunks of {self.chunks}\n  a slab: {self.slab}\n  a cube: {self.cube}"


def try_chunks(chunks: Shape | bool) -> ChunkTrial:
    """Write the volume in chunks, read slabs and random cubes, and count the cost.

    Args:
        chunks: shape of a chunk (z, y, x), or True to let h5py choose.

    Raises:
        ValueError: If HDF5 does not accept the chunk shape.
    """
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(f"{folder}/volume.h5", "w") as file:
            written = file.create_dataset("volume", data=_volume(), chunks=chunks, fletcher32=True)
            shape = written.chunks
        storage = counting_storage(folder)
        with storage.open("volume.h5") as raw, h5py.File(raw, "r", rdcc_nbytes=0) as file:
            read = file["volume"].__getitem__
            costs = (_cost(storage, read, places) for places in _places())
            return ChunkTrial(shape, *costs)


@cache
def _volume() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)


def _places() -> Iterator[list[Place]]:
    """Yield fixed slabs at all offsets to the chunks, then random cubes."""
    yield [np.s_[z : z + SLAB, :, :] for z in range(0, 3 * READS, 3)]
    corners = np.random.default_rng(0).integers(np.subtract(SHAPE, CUBE) + 1, size=(READS, 3))
    yield [tuple(map(slice, corner, corner + CUBE)) for corner in corners]


def _cost(
    storage: SlowFileSystem, read: Callable[[Place], NDArray[Any]], places: list[Place]
) -> ChunkCost:
    read(places[0])  # the first read also fetches the metadata of the dataset
    storage.reset_counters()
    wanted = sum(read(place).nbytes for place in places)
    counted = storage.counters()
    return ChunkCost(counted.requests / len(places), counted.bytes_read / wanted)
