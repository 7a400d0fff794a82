"""Plots of the book, drawn with the style of the course."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from course_stories.figures import bars, curves, drawing, rates_and_model
from course_utils.loading.quality import Mixing, plot_co_occurrence
from docs.book.plots import MOST, alternative_text, as_html

LONG = "Parquet with row groups of 1,000 events"
RATES = {"events": ({1: 3.0, 2: 6.0}, 2), "images": ({1: 3.0, 2: 5.0}, 1)}


def crowded() -> Figure:
    with drawing(10, 3, columns=3) as (figure, panels):
        for panel in panels:
            panel.plot(np.random.default_rng(0).random(30_000), ",")
    return figure


def mixing(seed: int) -> Mixing:
    shares = np.random.default_rng(seed).random((32, 32))
    counts = {"batch_size": 32, "memory": 1000, "samples": 9, "distinct": 9, "missing": 0}
    return Mixing(std=1.0, ideal=0.8, co_occurrence=shares, **counts)


FIGURES = {
    "bars": lambda: bars({"npz": 3.2, LONG: 5.1}, "batches per second"),
    "panels": lambda: rates_and_model(RATES),
    "pictures": lambda: plot_co_occurrence({f"buffer {n}": mixing(n) for n in range(4)}),
    "crowded": crowded,
}


@pytest.mark.parametrize("name", FIGURES)
def test_plot_has_readable_letters_in_the_colour_of_the_page(name: str) -> None:
    html = as_html(FIGURES[name]())
    wide, narrow = html.split('<div class="narrow">')
    for svg, most in (wide, 768), (narrow, 358):
        width = float(re.findall(r'<svg [^>]*width="([\d.]+)pt"', svg)[0]) * 4 / 3
        letters = re.findall(r"<text [^>]*font-size: ([\d.]+)px", svg)
        assert letters
        assert min(map(float, letters)) * 4 / 3 * min(1, most / width) >= 11
        assert set(re.findall(r"<text [^>]*fill: ([^;\"]+)", svg)) == {"currentColor"}
        assert "<style" not in svg  # would change the whole page
        assert len(svg) < 2 * MOST


def test_alternative_text_has_axes_names_and_values() -> None:
    found = [FIGURES["bars"](), curves([1, 2], {"a": [1, 2]}, xlabel="epoch", ylabel="loss")]
    assert [alternative_text(figure) for figure in found] == [
        f"Plot. batches per second: npz 3.2, {LONG} 5.1.",
        "Plot. loss against epoch. a.",
    ]
