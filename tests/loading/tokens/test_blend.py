"""Blends: the proportions at any point, and the window chosen from each corpus."""

import numpy as np
import pytest

from course_utils.loading.tokens import Blend, Corpus
from course_utils.loading.tokens.blend import proportional_order


def test_source_counts_are_within_two_samples_of_their_share() -> None:
    for number, count in ((2, 1), (3, 10), (5, 1_000), (8, 1_000)):
        rng = np.random.default_rng(number)
        for _ in range(20):
            weights = rng.dirichlet(np.full(number, rng.choice([0.3, 1, 5]))) + 1e-3
            sources, numbers = proportional_order(weights.tolist(), count)
            served = (sources[:, None] == np.arange(number)).cumsum(axis=0)
            shares = np.arange(1, count + 1)[:, None] * weights / weights.sum()
            assert np.abs(served - shares).max() < 2, (number, count)
            assert (numbers == served[np.arange(count), sources] - 1).all()
    in_percent, counts = proportional_order([0.2, 0.1], 9)[0], proportional_order([2, 1], 9)[0]
    assert in_percent.tolist() == counts.tolist()
    assert counts.tolist().count(0) == 6


def test_finished_corpus_starts_again_in_a_different_order(corpora: dict[str, Corpus]) -> None:
    blend = Blend([*corpora.values()], [1, 3], length=5, count=12)
    assert [len(windows) for windows in blend.windows] == [3, 9]
    assert [round(windows.epochs, 2) for windows in blend.windows] == [0.16, 4.5]
    turns = list(zip(blend.sources.tolist(), blend.numbers.tolist(), strict=True))
    assert len(set(turns)) == len(turns) == len(blend)
    for n, (source, number) in enumerate(turns):
        assert blend[n].tolist() == blend.windows[source][number].tolist()
    for weights in ([1], [1, 0], [1, float("nan")]):
        with pytest.raises(ValueError, match="one weight above 0 for each"):
            Blend([*corpora.values()], weights, length=5, count=10)
