"""Figures of copies, of prefetcher designs, and of the gain of prefetching."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from course_utils.stories.figures import drawing


def draw_copies(copies_ms: Mapping[str, tuple[float, float]], hardware: str) -> Figure:
    """Draw when the program continues and when the batch arrives, for each kind of copy."""
    with drawing(7, 2.2) as (figure, (panel,)):
        (held, there), names = zip(*copies_ms.values(), strict=True), list(copies_ms)
        panel.barh(
            names, there, color="none", edgecolor="C0", hatch="//", label="batch has arrived"
        )
        panel.barh(names, held, color="C1", height=0.4, label="program continues")
        panel.set(xlabel=f"ms until ... ({hardware})")
        panel.invert_yaxis()
        panel.legend()
    return figure


def draw_designs(
    runs: Mapping[str, Mapping[str, tuple[float, int]]], batches: int, hardware: str
) -> Figure:
    """Draw the overlap and the number of right batches for each kind of loop and each design."""
    with drawing(8, 2.8, columns=len(runs), sharey=True) as (figure, panels):
        for panel, (title, found) in zip(panels, runs.items(), strict=True):
            shares, right = zip(*found.values(), strict=True)
            colours = ["C0" if count == batches else "C1" for count in right]
            bars = panel.barh(list(found), [100 * share for share in shares], color=colours)
            labels = [f"{count} of {batches} right" for count in right]
            panel.bar_label(bars, labels, padding=3, color=plt.rcParams["text.color"])
            panel.set(title=title, xlim=(0, 170), xticks=(0, 50, 100))
            panel.set_xlabel(f"% of the copying overlapped ({hardware})")
        panels[0].invert_yaxis()
    return figure


def draw_gains(
    trainings: Mapping[str, tuple[float, float, float]],
    gains: Mapping[str, Mapping[int, float]],
    copy_ms: float,
    hardware: str,
) -> Figure:
    """Draw the speed-up by prefetching: lines for the model, points for measurements.

    Args:
        trainings: by name, the fixed ms per step, the ms per image of the step, and the ms per
            image of the loading.
        gains: by name, the measured speed-up for each batch size.
        copy_ms: copy time per image.
        hardware: the machine of the measurement.
    """
    with drawing(7, 2.8) as (figure, (panel,)):
        for number, (name, (launch, step, load)) in enumerate(trainings.items()):
            fine = np.geomspace(min(gains[name]), max(gains[name]), 200)
            slow, compute, copy = load * fine, launch + step * fine, copy_ms * fine
            faster = np.maximum.reduce([slow, compute, copy])
            panel.plot(fine, np.maximum(slow, compute + copy) / faster, color=f"C{number}")
            points: tuple[Sequence[int], Sequence[float]] = [*gains[name]], [*gains[name].values()]
            panel.plot(*points, "os^"[number], color=f"C{number}", label=name)
        panel.set(xscale="log", xlabel="images in a batch (log)")
        panel.set_xticks([*gains[name]], [str(count) for count in gains[name]])
        panel.minorticks_off()
        panel.set_ylabel(f"times faster ({hardware})")
        panel.legend()
    return figure
