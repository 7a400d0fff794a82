"""Draw who sits with whom, for several ways to shuffle side by side."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from course_utils.loading.events import colours
from course_utils.loading.stream.mixing import Mixing
from course_utils.style import STYLE

COLUMNS = 3
BRIGHTEST = 3.0  # times as often as in a full shuffle; what meets more often looks the same


def draw_together(ways: Mapping[str, Mixing]) -> Figure:
    """Draw a matrix for each way to shuffle: the file from front to back, against itself.

    All share one scale of colours. The title says how much more than ideal the batch means scatter.
    """
    columns = min(COLUMNS, len(ways))
    rows = -(-len(ways) // columns)
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(
            rows, columns, figsize=(2.6 * columns, 2.7 * rows), layout="constrained", squeeze=False
        )
        for panel in panels.flat[len(ways) :]:
            panel.remove()
        for panel, (name, mixed) in zip(panels.flat, ways.items(), strict=False):
            drawn = panel.imshow(mixed.together, cmap=colours(), vmin=0, vmax=BRIGHTEST)
            panel.set_title(_title(name, mixed), fontsize="medium")
            panel.set(xticks=[], yticks=[])
        for panel in panels[:, 0]:
            panel.set_ylabel("end of file ← begin")
        for panel in panels[-1]:
            panel.set_xlabel("begin → end of file")
        bar = figure.colorbar(drawn, ax=list(panels.flat[: len(ways)]), extend="max", shrink=0.8)
        bar.set_label("share a batch\n(1: as in a full shuffle)")
    plt.close(figure)  # a notebook shows what the cell returns, and only that
    return figure


def _title(name: str, mixed: Mixing) -> str:
    held = f" ({mixed.memory:,} held)" if mixed.memory else ""
    return f"{name}{held}\nscatter {mixed.ratio:.1f} × ideal"
