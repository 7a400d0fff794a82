"""Figures in the course's style, as Jupyter shows them."""

import matplotlib.pyplot as plt
from matplotlib_inline.backend_inline import _fetch_figure_metadata


def test_jupyter_adds_no_background_to_plots() -> None:
    with plt.style.context("course_utils.plots"):
        figure, panel = plt.subplots()
        panel.plot([1, 2])
        assert _fetch_figure_metadata(figure) is None  # type: ignore[no-untyped-call]
    plt.close(figure)
