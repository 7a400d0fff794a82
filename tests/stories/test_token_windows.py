"""Windows in pictures: how many a token is in, which documents one holds, who has had its turn."""

import numpy as np
from matplotlib.figure import Figure

from course_stories.token_windows import plot_coverage, plot_mask, times_served


def test_a_token_is_counted_in_each_window_that_it_is_in() -> None:
    assert times_served(np.array([0, 2, 7]), 3, 10).tolist() == [1, 1, 2, 1, 1, 0, 0, 1, 1, 1]


def test_the_share_that_is_missed_stands_on_the_picture() -> None:
    figure = plot_coverage({"half": np.arange(0, 990, 20)}, length=10, n_tokens=1000)
    assert isinstance(figure, Figure)
    assert figure.axes[0].get_title() == "half: 50 % of all tokens in no window"


def test_a_token_sees_its_own_document_up_to_its_end() -> None:
    ends = np.array([False, True, False, False])
    _, apart = (panel.images[0].get_array() for panel in plot_mask(ends).axes)
    assert apart is not None
    assert apart.tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
