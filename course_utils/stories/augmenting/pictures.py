"""Figures of augmented photographs, of times, and of a model with measured points."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from torch import Tensor

from course_utils.stories.augmenting.loops import load_ms, pace_ms
from course_utils.stories.figures import drawing, value_bars
from keepfed.measure.trace import Trace


def show(rows: Mapping[str, Tensor]) -> Figure:
    """Draw named rows of eight images, float 0..1, shape (at least 8, 3, height, width)."""
    from torchvision.utils import make_grid

    with drawing(10, 1.5 * len(rows), rows=len(rows)) as (figure, panels):
        for panel, (name, images) in zip(panels, rows.items(), strict=True):
            panel.imshow(make_grid(images[:8], pad_value=0.5).permute(1, 2, 0).numpy())
            panel.set(title=name, xticks=[], yticks=[], frame_on=False)
    return figure


def bars(panels: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw one panel per title, with a bar and its value for each name."""
    width, count = 4 + 3 * len(panels), len(panels)
    with drawing(width, 1.7, columns=count, sharey=True) as (figure, axes):
        for panel, (title, values) in zip(axes, panels.items(), strict=True):
            value_bars(panel, values, _figures, color=["C1", "C0", "C0"])
            panel.set(title=title, xticks=[])
    return figure


def _figures(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def places(
    trainings: Mapping[str, tuple[float, Sequence[Trace]]], parts: Sequence[float]
) -> Figure:
    """Draw T / C over A / C: lines for the model with two workers, points for measurements.

    Args:
        trainings: by name, C and the traces: first with augmentation in the workers, then on the
            device for each A. L is taken from these traces.
        parts: the measured values of A / C.
    """
    with drawing(10, 3.1, columns=len(trainings), sharey=True) as (figure, panels):
        for panel, (name, (c, traces)) in zip(panels, trainings.items(), strict=True):
            more, less = (load_ms(trace) / 2 / c for trace in traces[:2])
            workers, *device = (pace_ms(trace) / c for trace in traces)
            panel.axhline(max(1, more), color="C0", label="workers, predicted")
            panel.plot(0, workers, "oC0", clip_on=False, label="workers, measured")
            lines = [max(1 + a, less) for a in (0, *parts)]
            panel.plot([0, *parts], lines, "--C1", label="device, predicted")
            panel.plot(parts, device, "sC1", label="device, measured")
            panel.set(title=name, xlabel="A / C", ylim=0)
        panels[0].set_ylabel("T / C")
        entries = panels[0].get_legend_handles_labels()
        figure.legend(*entries, loc="outside lower right", ncols=4, frameon=False)
    return figure
