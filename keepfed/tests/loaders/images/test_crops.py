import numpy as np

from keepfed.loaders.images import Crops
from keepfed.loaders.images.crops import uniform


def test_random_numbers_are_uniform_and_uncorrelated() -> None:
    drawn = uniform(0, 0, range(4000), 8)
    assert drawn.dtype == np.float32
    assert 0 <= drawn.min() <= drawn.max() < 1
    counts = np.histogram(drawn, 10, (0, 1))[0]
    assert np.abs(counts - 3200).max() < 5 * 3200**0.5
    for seed, epoch, first in ((0, 0, 1), (0, 1, 0), (1, 0, 0)):
        others = uniform(seed, epoch, range(first, first + 4000), 8)
        assert abs(np.corrcoef(drawn.ravel(), others.ravel())[0, 1]) < 0.03
        assert not (drawn == others).any(1).mean() > 0.01
    assert abs(np.corrcoef(drawn.T) - np.eye(8)).max() < 0.08


def test_windows_are_inside_the_image_with_requested_sizes() -> None:
    for height, width in ((350, 400), (1, 1), (10, 1000)):
        sizes = np.tile((height, width), (2000, 1))
        windows, flips = Crops(flip_share=0.25).draw(0, 0, range(2000), sizes)
        places, sides = windows[:, :2], windows[:, 2:]
        assert (places >= 0).all(), (height, width)
        assert (sides > 0).all(), (height, width)
        assert (places + sides <= sizes).all(), (height, width)
        assert 0.2 < flips.mean() < 0.3
        if (height, width) == (350, 400):
            area = sides.prod(1) / (350 * 400)
            assert 0.079 < area.min() < 0.1
            assert 0.45 < area.mean() < 0.55
