"""Plots in the course's style, and the typeface of plots, slides and book."""

import matplotlib.pyplot as plt
from fontTools.ttLib import TTFont
from matplotlib_inline.backend_inline import _fetch_figure_metadata

from course_utils.paths import REPO
from course_utils.plots import TYPEFACE

PLACES = "slides/*.md", "slides/figures/**/*.py", "docs/**/*.md", "notebooks/source/*.py"


def test_jupyter_adds_no_background_to_plots() -> None:
    with plt.style.context("course_utils.plots.style"):
        figure, panel = plt.subplots()
        panel.plot([1, 2])
        assert _fetch_figure_metadata(figure) is None  # type: ignore[no-untyped-call]
    plt.close(figure)


def test_typeface_has_the_letters_of_all_texts_and_its_license() -> None:
    texts = "".join(path.read_text("utf-8") for place in PLACES for path in REPO.glob(place))
    for font in TYPEFACE.glob("*.ttf"):
        assert set(texts) - {"\n"} <= set(map(chr, TTFont(font).getBestCmap())), font
    assert "SIL OPEN FONT LICENSE Version 1.1" in (TYPEFACE / "OFL.txt").read_text("utf-8")
    assert sum(path.stat().st_size for path in TYPEFACE.iterdir()) < 500_000
