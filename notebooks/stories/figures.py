"""Pictures of the notebooks whose drawing teaches nothing: bars, and curves."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_utils.teaching.notebook import Bar, bars, card

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Bars(dict[str, float]):
    """Numbers by name, drawn below each other as bars from zero."""

    def __init__(self, title: str, numbers: Mapping[str, float], unit: str):
        """Keep `numbers`, all of one `unit`."""
        super().__init__(numbers)
        self.title, self.unit = title, unit

    def _repr_html_(self) -> str:
        rows = [Bar(name, value, f"{value:,.1f} {self.unit}") for name, value in self.items()]
        return card("plain", self.title, body=bars(rows))


def curves(x: Sequence[float], ys: Mapping[str, Sequence[float]], **labels: Any) -> "Figure":
    """Return a figure of curves over `x`, by name; `labels` are those of the axes and the title."""
    import matplotlib.pyplot as plt

    with plt.style.context("course_utils.plots"):  # readable on light and on dark pages
        figure, panel = plt.subplots(figsize=(7, 2.8), layout="constrained")
        for (name, y), line in zip(ys.items(), ("o-", "s--", "^:", "d-."), strict=False):
            panel.plot(x, y, line, label=name)
        panel.set(**labels)
        panel.legend()
    plt.close(figure)  # else a notebook shows it twice
    return figure
