"""Exercise 06.2: a chunk shape, checked by requests and bytes over all places of a read."""

from math import prod
from typing import Any

import numpy as np

from course_utils.stories.chunk_trial import CUBE, SHAPE, SLAB, ChunkCost
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from keepfed.formatting import plural

AMPLIFICATION, REQUESTS = 2.0, 400


@exercise("06.2", title="Choose a chunk shape", seconds=30)
def chunk_shape(chunks: Any) -> Verdict:
    """Check the shape of a chunk for slabs and for cubes."""
    shape = _read_shape(chunks)
    slab, cube = mean_cost(shape, (SLAB, *SHAPE[1:])), mean_cost(shape, (CUBE,) * 3)
    found = f"A slab costs {slab}. A cube costs {cube}"
    expect(
        slab.amplification <= AMPLIFICATION,
        f"{found}. HDF5 reads complete chunks. Yours have {plural(shape[0], 'plane')}, and a slab "
        f"needs only {SLAB}.",
        "Make the chunk thinner along z, the first axis.",
    )
    thicker = f" Or make it thicker along z: a slab has {SLAB} planes." * (shape[0] < SLAB)
    expect(
        cube.amplification <= AMPLIFICATION,
        f"{found}. Chunks stick out of a cube of {CUBE} voxels along y and x.",
        f"Make the chunk smaller along y and x, where an edge of c costs about ({CUBE} + c) / "
        f"{CUBE}.{thicker}",
    )
    expect(
        max(slab.requests, cube.requests) <= REQUESTS,
        f"{found}. Small chunks waste no bytes, but each is a request, and {REQUESTS} are allowed.",
        f"Make the chunk larger, up to an amplification of {AMPLIFICATION:g}.{thicker}",
    )
    return right(f"{found}. No shape is best for both, and yours is good enough.")


def mean_cost(chunks: tuple[int, ...], read: tuple[int, ...]) -> ChunkCost:
    """Return the mean cost over all places of a read of this shape. A chunk is one request."""
    touched = prod(map(_mean_chunks, SHAPE, read, chunks))
    return ChunkCost(touched, touched * prod(chunks) / prod(read))


def _mean_chunks(size: int, read: int, chunk: int) -> float:
    """Return the mean number of chunks that a read touches along one axis."""
    starts = np.arange(size - read + 1)
    return float(np.mean((starts + read - 1) // chunk - starts // chunk + 1))


def _read_shape(chunks: Any) -> tuple[int, ...]:
    expect(
        chunks is not True,
        "With chunks=True, h5py chooses, and it considers the shape of the data, but not your "
        "reads.",
        "Give three numbers: planes, rows, columns.",
    )
    shape = chunks.tolist() if isinstance(chunks, np.ndarray) else chunks
    whole = isinstance(shape, tuple | list) and all(
        isinstance(n, int | np.integer) and not isinstance(n, bool) for n in shape
    )
    expect(
        whole
        and len(shape) == len(SHAPE)
        and all(1 <= n <= size for n, size in zip(shape, SHAPE, strict=True)),
        f"{chunks!r} is not the shape of a chunk in a volume of {SHAPE}.",
        "Give three whole numbers from 1 to the size of the volume: planes, rows, columns.",
    )
    return tuple(map(int, shape))
