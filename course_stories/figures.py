"""Pictures of the notebooks whose drawing teaches nothing: bars, curves, a model and its points."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course_utils.teaching.notebook import Bar, card
from course_utils.teaching.notebook import bars as bars_of_a_card

Rates = Mapping[int, float]  # workers -> batches per second


@contextmanager
def drawing(
    width: float, height: float, *, rows: int = 1, columns: int = 1, title: str = "", **options: Any
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Give a figure (inches) and its panels, row by row, in the style of the course."""
    with plt.style.context("course_utils.plots"):  # readable on light and on dark pages
        figure, panels = plt.subplots(
            rows, columns, squeeze=False, figsize=(width, height), layout="constrained", **options
        )
        figure.suptitle(title, color="gray", fontsize="small")
        yield figure, list(panels.flat)
    plt.close(figure)  # a notebook shows what the cell returns, and only that


def value_bars(
    panel: Axes, values: Mapping[str, float], say: Callable[[float], str], **looks: Any
) -> None:
    """Draw a bar for each value, the first on top, and write behind it what `say` says of it."""
    drawn = panel.barh(list(values), list(values.values()), **looks)
    said = list(map(say, values.values()))
    panel.bar_label(drawn, said, padding=3, color=plt.rcParams["text.color"])
    panel.margins(x=0.2)
    if not panel.yaxis_inverted():  # panels side by side share this axis
        panel.invert_yaxis()


def bars(
    values: Mapping[str, float],
    label: str,
    say: Callable[[float], str] = "{:.3g}".format,
    **axes: Any,
) -> Figure:
    """Draw a bar for each value, and what `say` says of it; `label` says what they are."""
    with drawing(7, 0.7 + 0.3 * len(values)) as (figure, (panel,)):
        value_bars(panel, values, say)
        panel.set(xlabel=label, **axes)
    return figure


class Bars(dict[str, float]):
    """Numbers by name, drawn below each other as bars from zero."""

    def __init__(self, title: str, numbers: Mapping[str, float], unit: str):
        """Keep `numbers`, all of one `unit`."""
        super().__init__(numbers)
        self.title, self.unit = title, unit

    def _repr_html_(self) -> str:
        rows = [Bar(name, value, f"{value:,.1f} {self.unit}") for name, value in self.items()]
        return card("plain", self.title, body=bars_of_a_card(rows))


def curves(x: Sequence[float], ys: Mapping[str, Sequence[float]], **labels: Any) -> Figure:
    """Return a figure of curves over `x`, by name; `labels` are those of the axes and the title."""
    with drawing(7, 2.8) as (figure, (panel,)):
        for (name, y), line in zip(ys.items(), ("o-", "s--", "^:", "d-."), strict=False):
            panel.plot(x, y, line, label=name)
        panel.set(**labels)
        panel.legend()
    return figure


def rates_and_model(cases: Mapping[str, tuple[Rates, int]]) -> Figure:
    """Draw rates, measured and by the model min(W, P) / L; a case has a name, its rates and P."""
    with drawing(9, 2.6, columns=len(cases)) as (figure, panels):
        for panel, (name, (rates, parallel)) in zip(panels, cases.items(), strict=True):
            model = [rates[1] * min(workers, parallel) for workers in rates]
            panel.plot(list(rates), model, "--", color="0.5", label="model")
            panel.plot(list(rates), list(rates.values()), "o", label="measured")
            panel.set(title=f"{name}, P = {parallel}", xlabel="workers", ylim=0)
            panel.set(xticks=list(rates), ylabel="batches per second")
            panel.legend()
    return figure
