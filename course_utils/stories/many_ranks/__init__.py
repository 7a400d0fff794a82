"""Draw the samples that each rank serves in an epoch, for notebook 11."""

from collections import Counter
from collections.abc import Sequence

from matplotlib.figure import Figure

from course_utils.stories.figures import drawing
from keepfed.palette import BAD, SKY


def plot_shares(shares: Sequence[Sequence[int]]) -> Figure:
    """Draw one row of samples per rank, and mark samples that were served before."""
    length, met = max(map(len, shares)), Counter[int]()
    with drawing(2.5 + 0.6 * length, 0.6 + 0.45 * len(shares)) as (figure, (panel,)):
        for place in range(length):  # all ranks serve their first sample, then their second
            for rank, own in enumerate(shares):
                if place < len(own):
                    again = met[own[place]] > 0
                    met[own[place]] += 1
                    colour = BAD if again else SKY
                    (bar,) = panel.barh(rank, 0.9, left=place + 0.05, color=colour)
                    bar.set(hatch="///" if again else "", edgecolor="white")
                    behind = {"facecolor": colour, "edgecolor": "none", "pad": 2}
                    text = panel.text(place + 0.5, rank, f"{own[place]}", ha="center", va="center")
                    text.set(color="black", bbox=behind)
        panel.set_yticks(range(len(shares)), [f"rank {rank}" for rank in range(len(shares))])
        panel.invert_yaxis()
        panel.set_xticks([])
        twice = sum(count > 1 for count in met.values())
        panel.set_title(f"{met.total()} served, {twice} served twice (hatched)", fontsize="medium")
        panel.grid(False)
    return figure
