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
