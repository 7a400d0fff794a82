"""Draw the samples that each rank serves in an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from keepfed.palette import BAD, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ONCE, AGAIN = SKY, BAD


def plot_shares(shares: Sequence[Sequence[int]]) -> Figure:
    """Draw one row of samples per rank, and mark samples that were served before."""
    import matplotlib.pyplot as plt

    length, met = max(map(len, shares)), Counter[int]()
    with plt.style.context("course_utils.plots"):
        size = (2.5 + 0.6 * length, 0.6 + 0.45 * len(shares))
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        for place in range(length):  # all ranks serve their first sample, then their second
            for rank, own in enumerate(shares):
                if place < len(own):
                    again = met[own[place]] > 0
                    met[own[place]] += 1
                    colour = AGAIN if again else ONCE
                    (bar,) = axes.barh(rank, 0.9, left=place + 0.05, color=colour)
                    bar.set(hatch="///" if again else "", edgecolor="white")
                    behind = {"facecolor": colour, "edgecolor": "none", "pad": 2}
                    text = axes.text(place + 0.5, rank, f"{own[place]}", ha="center", va="center")
                    text.set(color="black", bbox=behind)
        axes.set_yticks(range(len(shares)), [f"rank {rank}" for rank in range(len(shares))])
        axes.invert_yaxis()
        axes.set_xticks([])
        twice = sum(count > 1 for count in met.values())
        axes.set_title(f"{met.total()} served, {twice} served twice (hatched)", fontsize="medium")
        axes.grid(False)
    plt.close(figure)  # else a notebook shows the figure twice
    return figure
