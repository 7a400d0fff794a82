"""Figures: what Jupyter makes of the style of the course."""

import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import _fetch_figure_metadata


def test_jupyter_puts_no_box_of_its_own_behind_a_plot() -> None:
    with plt.style.context("course_utils.plots"):
        figure, panel = plt.subplots()
        panel.plot([1, 2])
        assert _fetch_figure_metadata(figure) is None  # type: ignore[no-untyped-call]
    plt.close(figure)
