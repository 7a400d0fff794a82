"""Figures of ranks that wait for each other, and of the cost of an hour."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from keepfed.measure.picture import LOOKS
from keepfed.palette import BAD, GOOD
from slides.figures.fast_data_loaders.drawing import slide


def slowest() -> Figure:
    """Draw four steps of three synchronized ranks, the third of which reads from a file server."""
    loads, step, turns = (10, 10, 45), 20, 4
    with slide(12.4, 3.9) as (figure, (panel,)):
        for rank, load in enumerate(loads):
            for turn in range(turns):
                start = turn * (max(loads) + step)
                rest = max(loads) - load
                parts = (("read", load), ("compute", step), ("wait", rest))
                for stage, length in parts:
                    look = LOOKS[stage]
                    label = stage if (rank, turn) == (0, 0) else None
                    bar = panel.barh(rank, length, 0.7, left=start, label=label)[0]
                    bar.set(facecolor=look.color, edgecolor=look.edge(dark=False))
                    bar.set(alpha=0.5 if stage == "wait" else 1.0)
                    start += length
        panel.legend(loc="lower center", ncols=3, bbox_to_anchor=(0.5, 1.0), frameon=False)
        panel.set(yticks=range(len(loads)), xticks=[], xlabel="time →")
        panel.set_yticklabels(["rank 0", "rank 1", "rank 2, from\na file server"])
        panel.invert_yaxis()
        panel.spines[:].set_visible(False)
    return figure


def useful_hour() -> Figure:
    """Draw the price of one hour of work of a GPU that costs 3 dollars an hour."""
    busy = np.linspace(0.15, 1, 100)
    with slide(5.9, 5.0) as (figure, (panel,)):
        panel.plot(100 * busy, 3 / busy, color="gray")
        for share, color in (0.3, BAD), (0.8, GOOD):
            panel.plot(100 * share, 3 / share, "o", color=color, markersize=14)
            panel.text(100 * share + 4, 3 / share + 0.7, rf"\${3 / share:.2f}")
        panel.set(xlabel="GPU busy (%)", ylabel="$ per useful hour", ylim=(0, 21), xlim=(10, 105))
        panel.set(xticks=(30, 80), yticks=(0, 5, 10, 15, 20))
    return figure
