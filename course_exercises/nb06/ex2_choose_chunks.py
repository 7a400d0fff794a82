"""Check of notebook 06: a chunk shape, judged by requests and bytes."""

from math import prod
from typing import Any

import numpy as np

from course_stories.chunk_trial import CUBE, SHAPE, SLAB, try_chunks
from course_utils.teaching.exercise import Verdict, exercise, expect, right

AMPLIFICATION, REQUESTS = 2.0, 400
SEED, READS = 101, 16  # cubes that the notebook does not show
SMALLEST = 64  # voxels: below, the trial itself would take minutes


@exercise("06.2", title="Choose a chunk shape")
def chunk_shape(chunks: Any) -> Verdict:
    """Judge the shape of a chunk for slabs and for cubes at hidden places."""
    chunks = chunks.tolist() if isinstance(chunks, np.ndarray) else chunks
    _judge_shape(chunks)
    shape = (int(chunks[0]), int(chunks[1]), int(chunks[2]))
    trial = try_chunks(shape, seed=SEED, reads=READS)
    slab, cube = trial.slab, trial.cube
    tall, found_slab, found_cube = shape[0], f"A slab costs {slab}", f"A cube costs {cube}"
    expect(
        not (slab.amplification > AMPLIFICATION and cube.amplification > AMPLIFICATION),
        f"{found_slab}. {found_cube}. A chunk is read whole, however little of it is wanted, and "
        "yours is large for both.",
        f"Make it small against a slab of {SLAB} planes and a cube of {CUBE} voxels.",
    )
    expect(
        slab.amplification <= AMPLIFICATION,
        f"{found_slab}. A chunk of {tall} planes is read for a slab of {SLAB}, and at its edges "
        "chunks are read for a single plane.",
        "Make the chunk thinner along z, the first axis.",
    )
    expect(
        cube.amplification <= AMPLIFICATION,
        f"{found_cube}. The chunk suits the slab; a cube of {CUBE} pays for what sticks out along "
        "y and x.",
        "Make the chunk smaller along y and x, where an edge c costs about (48 + c) / 48"
        + (f", and thicker along z: a slab has {SLAB} planes." if tall < SLAB else "."),
    )
    for name, cost in ("slab", slab), ("cube", cube):
        expect(
            cost.requests <= REQUESTS,
            f"A {name} costs {cost}. Small chunks waste no bytes, but each is a request; "
            f"{REQUESTS} are allowed.",
            f"Make the chunk thicker along z: a slab has {SLAB} planes."
            if tall < SLAB
            else "Make the chunk larger, as far as an amplification of 2 lets you.",
        )
    return right(
        f"{found_slab}. {found_cube}. No shape is best for both, and yours is good enough."
    )


def _judge_shape(chunks: Any) -> None:
    expect(
        chunks is not True,
        "chunks=True lets h5py choose. It knows the shape of the data, and not how you read.",
        "Give three numbers: planes, rows, columns.",
    )
    whole = isinstance(chunks, tuple | list) and all(
        isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= 1 for n in chunks
    )
    expect(
        whole and len(chunks) == len(SHAPE),
        f"{chunks!r} is no shape of a chunk of a volume with three axes.",
        "Give three whole numbers from 1 on: planes, rows, columns.",
    )
    expect(
        all(n <= size for n, size in zip(chunks, SHAPE, strict=True)),
        f"A chunk of {tuple(chunks)} is larger than the volume, {SHAPE}.",
        "Stay within it along each axis.",
    )
    voxels = prod(map(int, chunks))
    expect(
        voxels >= SMALLEST,
        f"A chunk of {voxels} voxels makes {prod(SHAPE) / voxels:,.0f} chunks. No byte is read in "
        f"vain, and a slab takes more than {SLAB * prod(SHAPE[1:]) / voxels:,.0f} requests.",
        f"{REQUESTS} are allowed: begin with some hundred voxels.",
    )
