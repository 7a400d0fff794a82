"""Figures for the notebooks: bars, dots and curves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import floor, log10
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Say = Callable[[float], str]


@contextmanager
def drawing(
    width: float, height: float, *, rows: int = 1, columns: int = 1, title: str = "", **options: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Yield a figure (size in inches) and its panels, row by row, in the course's style."""
    with plt.style.context("course_utils.plots.style"):  # readable on light and on dark pages
        figure, panels = plt.subplots(
            rows, columns, squeeze=False, figsize=(width, height), layout="constrained", **options
        )
        figure.suptitle(title, color="gray", fontsize="small")
        yield figure, list(panels.flat)
    plt.close(figure)  # else a notebook shows the figure twice


def value_bars(panel: Axes, values: Mapping[str, float], say: Say, **looks: Any) -> None:
    """Draw a bar for each value, the first on top, with `say(value)` as its label."""
    drawn = panel.barh(list(values), list(values.values()), **looks)
    said = list(map(say, values.values()))
    panel.bar_label(drawn, said, padding=3, color=plt.rcParams["text.color"])
    panel.margins(x=0.2)
    if not panel.yaxis_inverted():  # panels side by side share this axis
        panel.invert_yaxis()


def log_dots(
    panel: Axes, values: Mapping[str, float], label: str, say: Say, color: str | list[str] = "C0"
) -> None:
    """Draw a dot for each value on a logarithmic axis, the first on top.

    The length of a bar would mean a ratio to zero, which a logarithmic axis does not have.
    """
    found, rows = list(values.values()), range(len(values))
    start = 10.0 ** floor(log10(min(found)))
    end = max(found) * (max(found) / start) ** 0.25  # leaves space for the last label
    panel.hlines(rows, start, found, colors=color, linestyles=":")
    panel.scatter(found, rows, plt.rcParams["font.size"] ** 2 / 2, color, zorder=3)
    for value, row in zip(found, rows, strict=True):
        panel.annotate(
            say(value), (value, row), (10, 0), textcoords="offset points", va="center_baseline"
        )
    panel.set(xscale="log", xlim=(start / 1.2, end), xlabel=f"{label} (log)")
    panel.set(yticks=rows, yticklabels=values, ylim=(len(found) - 0.5, -0.5))
    panel.minorticks_off()
    if start >= 1e-3 and end < 1e6:
        panel.xaxis.set_major_formatter("{x:,g}")


def dots(values: Mapping[str, float], label: str, say: Say = "{:.3g}".format) -> Figure:
    """Draw a dot for each value on a logarithmic axis named `label`."""
    with drawing(7, 0.9 + 0.3 * len(values)) as (figure, (panel,)):
        log_dots(panel, values, label, say)
    return figure


def bars(
    values: Mapping[str, float], label: str, say: Say = "{:.3g}".format, **axes: Any
) -> Figure:
    """Draw a bar for each value with `say(value)` as its label; `label` names the axis."""
    with drawing(7, 0.7 + 0.3 * len(values)) as (figure, (panel,)):
        value_bars(panel, values, say)
        panel.set(xlabel=label, **axes)
    return figure


def curves(x: Sequence[float], ys: Mapping[str, Sequence[float]], **labels: Any) -> Figure:
    """Return a figure of curves over `x` by name; `labels` set axis labels and title."""
    with drawing(7, 2.8) as (figure, (panel,)):
        for (name, y), line in zip(ys.items(), ("o-", "s--", "^:", "d-."), strict=False):
            panel.plot(x, y, line, label=name)
        panel.set(**labels)
        panel.legend()
    return figure
