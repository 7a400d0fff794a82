"""Plots of token windows: coverage and document masks."""

import numpy as np
from matplotlib.figure import Figure

from course_utils.stories.token_windows import plot_coverage, plot_mask, times_served


def test_token_counts_in_every_window_that_contains_it() -> None:
    assert times_served(np.array([0, 2, 7]), 3, 10).tolist() == [1, 1, 2, 1, 1, 0, 0, 1, 1, 1]


def test_plot_title_shows_share_of_missed_tokens() -> None:
    figure = plot_coverage({"half": np.arange(0, 990, 20)}, length=10, n_tokens=1000)
    assert isinstance(figure, Figure)
    assert figure.axes[0].get_title() == "half: 50 % of all tokens in no window"


def test_mask_limits_tokens_to_their_document() -> None:
    ends = np.array([False, True, False, False])
    _, apart = (panel.images[0].get_array() for panel in plot_mask(ends).axes)
    assert apart is not None
    assert apart.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
