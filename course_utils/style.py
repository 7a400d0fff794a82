"""The style of every plot of the course, on light pages and on dark ones."""

from typing import Any

GREY = "#808080"  # readable on white and on the dark pages of JupyterLab
STYLE: dict[Any, str] = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}
