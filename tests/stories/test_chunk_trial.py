"""A trial of a chunk shape counts the requests of HDF5."""

import pytest

from course_utils.stories.chunk_trial import CUBE, SHAPE, SLAB, try_chunks


def test_every_read_fetches_complete_chunks() -> None:
    trial = try_chunks((1, *SHAPE[1:]))
    assert (trial.slab.requests, trial.slab.amplification) == (SLAB, pytest.approx(1, abs=0.001))
    whole_planes = SHAPE[1] * SHAPE[2] / CUBE**2
    assert trial.cube.amplification == pytest.approx(whole_planes, rel=0.01)
    trial = try_chunks(SHAPE)
    assert (trial.slab.requests, trial.cube.requests) == (1, 1)
    assert trial.slab.amplification == pytest.approx(SHAPE[0] / SLAB, rel=0.01)


def test_true_lets_h5py_choose_and_bad_shape_raises_error() -> None:
    trial = try_chunks(True)
    assert all(1 <= n <= size for n, size in zip(trial.chunks, SHAPE, strict=True))
    assert str(trial).startswith(f"chunks of {trial.chunks}\n  a slab: ")
    with pytest.raises(ValueError, match=r"[Cc]hunk"):
        try_chunks((65, 192, 192))


def test_seed_determines_cube_positions() -> None:
    same, again, other = (try_chunks((8, 48, 48), seed=seed) for seed in (1, 1, 2))
    assert same == again != other
