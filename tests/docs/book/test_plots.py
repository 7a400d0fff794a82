import re

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils.stories.figures import bars, drawing
from docs.book.plots import MOST, as_html

LONG = "Parquet with row groups of 1,000 events"
NOISE = np.random.default_rng(0).random((200, 200))


def panels(draw: str, *args: object) -> Figure:
    with drawing(11, 3, columns=3) as (figure, axes):
        for panel in axes:
            getattr(Axes, draw)(panel, *args)
            panel.set_title("Scatter of the batch means with a buffer")
    return figure


@pytest.mark.slow
def test_plot_has_readable_letters_in_the_color_of_the_page() -> None:
    values = bars({"npz": 3.2, LONG: 5.1}, "batches per second")
    drawn = [panels("imshow", NOISE[:9, :9]), panels("plot", NOISE.ravel(), ",")]
    for figure in values, *drawn:
        wide, narrow = as_html(figure).split('<div class="narrow">')
        for svg, most in (wide, 776), (narrow, 358):
            width = float(re.findall(r'<svg [^>]*width="([\d.]+)pt"', svg)[0]) * 4 / 3
            letters = map(float, re.findall(r"<text [^>]*font-size: ([\d.]+)px", svg))
            assert min(letters) * 4 / 3 * min(1, most / width) >= 11
            assert svg.count("<text ") == len(re.findall("<text [^>]*fill: currentColor", svg))
            assert "<style" not in svg  # would change the whole page
            assert len(svg) < 3 * MOST
