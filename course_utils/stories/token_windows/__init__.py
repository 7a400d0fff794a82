"""Plots of token windows and of document masks for notebook 12.

plot_coverage({"random starts": starts}, length=128, n_tokens=100_000)
plot_mask(windows[0] == END)
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from course_utils.stories.figures import drawing
from keepfed.formatting import percent

Starts = NDArray[np.int64]
SHOWN = 16  # length of the plotted range, in windows


def times_served(starts: Starts, length: int, n_tokens: int) -> NDArray[np.int64]:
    """Return for each token the number of windows that contain it."""
    tokens = starts[:, None] + np.arange(length)
    return np.bincount(tokens.ravel(), minlength=n_tokens)


def plot_coverage(ways: Mapping[str, Starts], length: int, n_tokens: int) -> Figure:
    """Draw the number of windows that contain each token, for a range in the middle."""
    shown, middle = np.arange(SHOWN * length), n_tokens // 2
    size = 0.5 + 1.1 * len(ways)
    with drawing(8, size, rows=len(ways), sharex=True, sharey=True) as (figure, panels):
        for panel, (name, starts) in zip(panels, ways.items(), strict=True):
            counts = times_served(starts, length, n_tokens)
            panel.fill_between(shown, counts[middle + shown], step="post", alpha=0.7)
            panel.set(title=f"{name}: {percent(np.mean(counts == 0))} of all tokens in no window")
            panel.set(ylabel="windows", xlim=(0, shown[-1]), ylim=(0, 4), yticks=range(5))
        panels[-1].set(xlabel="token, starting at the middle of the corpus")
    return figure


def plot_mask(ends: NDArray[np.bool_]) -> Figure:
    """Draw the causal mask of a window, and the causal mask limited to documents.

    Args:
        ends: for each token, whether it is the last token of a document.
    """
    document: NDArray[np.int64] = np.cumsum(ends) - ends
    earlier = np.tri(len(ends))
    masks = {
        "any token before": earlier,
        "of the same document": earlier * (document[:, None] == document),
    }
    with drawing(7, 3.2, columns=2, sharey=True) as (figure, panels):
        for panel, (name, mask) in zip(panels, masks.items(), strict=True):
            panel.imshow(mask, cmap=ListedColormap(["none", "C0"]), interpolation="nearest")
            panel.set(title=name, xlabel="sees token")
        panels[0].set(ylabel="token")
    return figure
