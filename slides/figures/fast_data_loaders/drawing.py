"""Shared font sizes, colors and a simulated loop for the figures of the deck."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from keepfed.measure.simulate import Pipeline, simulate

POINTS = 24  # smallest text on a slide
LOOP = Pipeline(read_ms=70, decode_ms=10, step_ms=50, num_workers=2, steps=60)  # L = 80, C = 50


@contextmanager
def slide(width: float, height: float, **options: Any) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure of `width` x `height` inches, and its panels. A slide is 13.3 inches wide."""
    kinds = (
        "font.size axes.titlesize axes.labelsize legend.fontsize xtick.labelsize ytick.labelsize"
    )
    sizes: Any = dict.fromkeys(kinds.split(), POINTS)
    with plt.rc_context(sizes):
        rows, columns = options.pop("rows", 1), options.pop("columns", 1)
        figure, panels = plt.subplots(
            rows, columns, squeeze=False, figsize=(width, height), layout="constrained", **options
        )
        yield figure, list(panels.flat)
    plt.close(figure)


def rate(pipeline: Pipeline) -> float:
    """Return the steps per second of the second half of a simulated loop."""
    ends = sorted(span.end_ns for span in simulate(pipeline).spans if span.lane == "gpu")
    half = ends[len(ends) // 2 - 1 :]
    return (len(half) - 1) / (half[-1] - half[0]) * 1e9
