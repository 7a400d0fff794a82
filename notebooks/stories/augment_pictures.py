"""Pictures of augmented photographs, of times beside each other, and of a model with its points."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor
from torchvision.utils import make_grid

from course_utils.measure.trace import Trace
from notebooks.stories.augment_loops import load_ms, pace_ms


def show(rows: Mapping[str, Tensor]) -> Figure:
    """Draw rows of eight pictures, float 0..1 (8 or more, 3, height, width), each with its name."""
    with plt.style.context("course_utils.plots"):
        size = 10, 1.5 * len(rows)
        figure, panels = plt.subplots(len(rows), squeeze=False, figsize=size, layout="constrained")
        for panel, (name, images) in zip(panels.flat, rows.items(), strict=True):
            panel.imshow(make_grid(images[:8], pad_value=0.5).permute(1, 2, 0).numpy())
            panel.set(title=name, xticks=[], yticks=[], frame_on=False)
        plt.close(figure)
    return figure


def bars(panels: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw a panel for each title, a bar for each name in it, with its value."""
    with plt.style.context("course_utils.plots"):
        figure, axes = plt.subplots(
            1,
            len(panels),
            sharey=True,
            squeeze=False,
            figsize=(4 + 3 * len(panels), 1.7),
            layout="constrained",
        )
        for panel, (title, values) in zip(axes.flat, panels.items(), strict=True):
            drawn = panel.barh(list(values), list(values.values()), color=["C1", "C0", "C0"])
            colour = plt.rcParams["text.color"]
            labels = [f"{v:,.0f}" if v >= 100 else f"{v:.3g}" for v in values.values()]
            panel.bar_label(drawn, labels, padding=3, color=colour)
            panel.set(title=title, xticks=[])
            panel.margins(x=0.2)
        axes[0, 0].invert_yaxis()
        plt.close(figure)
    return figure


def places(
    trainings: Mapping[str, tuple[float, Sequence[Trace]]], parts: Sequence[float]
) -> Figure:
    """Draw T / C over A / C, lines for the model with two workers, points for what was measured.

    Args:
        trainings: by name C, and the traces with the workers augmenting, and with the device for
            each A. L is what it was in these runs, with other programs beside them or without.
        parts: the A / C that were measured.
    """
    with plt.style.context("course_utils.plots"):
        figure, panels = plt.subplots(
            1, len(trainings), sharey=True, figsize=(10, 2.8), layout="constrained"
        )
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
        panels[-1].legend(fontsize="small", loc="upper right")
        plt.close(figure)
    return figure
