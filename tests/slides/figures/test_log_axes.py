"""All figures of the decks: a logarithmic axis has no bars, and its label has "(log)"."""

import re
from importlib import import_module

import matplotlib.pyplot as plt
import pytest
from matplotlib.container import BarContainer
from matplotlib.figure import Figure

from slides.build.__main__ import decks
from slides.build.blocks import STYLES
from slides.build.rich_text import SLIDES

FIGURES = [
    (deck, name)
    for deck in decks()
    for name in re.findall(r"^:::figure (\w+)", (SLIDES / f"{deck}.md").read_text(), re.MULTILINE)
]


@pytest.mark.full
@pytest.mark.slow
def test_logarithmic_axes_are_labelled_and_have_no_bars() -> None:
    for deck, name in FIGURES:
        with plt.style.context(STYLES):
            figure: Figure = getattr(import_module(f"slides.figures.{deck}"), name)()
        plt.close(figure)
        for panel in figure.axes:
            across = panel.get_xscale() == "log", panel.get_shared_x_axes().get_siblings(panel)
            down = panel.get_yscale() == "log", panel.get_shared_y_axes().get_siblings(panel)
            if across[0]:
                assert any("log)" in one.get_xlabel() for one in across[1]), deck
            if down[0]:
                assert any("log)" in one.get_ylabel() for one in down[1]), deck
            if across[0] or down[0]:
                assert not [one for one in panel.containers if isinstance(one, BarContainer)], deck
