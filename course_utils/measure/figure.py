"""Draw the timeline with matplotlib: the same picture for a report or a poster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_utils.measure.layout import Lane, busy_shares, idle_gaps, lanes, reach
from course_utils.measure.palette import IDLE, LOOKS, Look
from course_utils.measure.trace import STAGES, Trace
from course_utils.measure.wording import percent

COLUMNS = 800  # a lane with more spans than half of this is drawn as shares of each column


def draw(traces: Trace | Mapping[str, Trace], ax: Axes | None = None) -> Figure:
    """Draw one trace, or several by name above each other, and return the figure.

    Hatches tell the stages apart in grey print. Only one trace can be drawn into a given `ax`.
    """
    named = {traces.label: traces} if isinstance(traces, Trace) else dict(traces)
    if ax is None:
        axes = _new_axes(named.values())
    elif len(named) == 1:
        axes = [ax]
    else:
        raise ValueError(f"{len(named)} traces do not fit into one axes; call draw without ax.")
    for panel, (name, trace) in zip(axes, named.items(), strict=True):
        _draw_trace(panel, trace, name)
    spans = [reach(trace) for trace in named.values()]
    axes[-1].set(xlabel="time (s)", xlim=(0, max(end - start for start, end in spans) / 1e9))
    _draw_legend(axes[0], named.values())
    figure = axes[0].get_figure(root=True)
    assert figure is not None
    return figure


def _new_axes(traces: Iterable[Trace]) -> list[Axes]:
    """Make one axes per trace, as high as its lanes need, with a common time axis."""
    heights = [1.4 + len(trace.lanes) for trace in traces]
    figure, grid = plt.subplots(
        len(heights),
        squeeze=False,
        sharex=True,
        height_ratios=heights,
        figsize=(10, 0.8 + 0.32 * sum(heights)),
        layout="constrained",
    )
    plt.close(figure)  # a notebook shows what the cell returns, and only that
    return list(grid[:, 0])


def _draw_trace(ax: Axes, trace: Trace, name: str) -> None:
    summary = trace.summary()
    start, end = reach(trace)
    names, middles = [], []
    top = 0.0
    for lane in lanes(trace):
        height = 1.4 if lane.name == "gpu" else 0.8
        _draw_lane(ax, lane, trace, top, height)
        share = summary.utilisation if lane.name == "gpu" else lane.busy_ns() / (end - start)
        names.append(f"{lane.name}  {percent(share):>5}")
        middles.append(top + height / 2)
        top += height + 0.2
    ax.set(ylim=(top, -0.2), yticks=middles, yticklabels=names)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    busy = f"GPU busy {percent(summary.utilisation)}"
    ax.set_title(f"{name}: {busy}" if name else busy, loc="left", fontsize="medium", weight="bold")
    ax.set_title(trace.note, loc="right", fontsize="small", style="italic")


def _draw_lane(ax: Axes, lane: Lane, trace: Trace, top: float, height: float) -> None:
    origin, end = reach(trace)
    if lane.name == "gpu":
        gaps = [((a - origin) / 1e9, (b - a) / 1e9) for a, b in idle_gaps(trace)]
        ax.broken_barh(gaps, (top, height), **_paint(IDLE))
    if len(lane.placed) > COLUMNS / 2:
        return _draw_shares(ax, lane, (origin, end), top, height)
    row_height = height / lane.rows
    bars: dict[tuple[int, int, str], list[tuple[float, float]]] = {}
    for p in lane.placed:
        bar = (p.span.start_ns - origin) / 1e9, p.span.duration_ns / 1e9
        bars.setdefault((p.depth, p.row, p.span.stage), []).append(bar)
    for (depth, row, stage), ranges in sorted(bars.items()):  # what is nested is drawn last
        inset = min(0.12 * depth, row_height / 3)
        place = top + row * row_height + inset, row_height - 2 * inset
        ax.broken_barh(ranges, place, **_paint(LOOKS[stage]))
    return None


def _draw_shares(ax: Axes, lane: Lane, window: tuple[int, int], top: float, height: float) -> None:
    """Draw how much of each column's time every stage took, where spans would be too narrow."""
    row_height = height / lane.rows
    tops = busy_shares(lane, window, COLUMNS).cumsum(axis=1).clip(0, 1)
    seconds = np.linspace(0, (window[1] - window[0]) / 1e9, COLUMNS, endpoint=False)
    for row in range(lane.rows):
        foot = top + (row + 1) * row_height
        below = np.full(COLUMNS, foot)
        for stage, high in zip(STAGES, foot - tops[row] * row_height, strict=True):
            look = LOOKS[stage]
            ax.fill_between(
                seconds, below, high, step="post", color=look.colour, alpha=look.opacity, lw=0
            )
            below = high


def _draw_legend(ax: Axes, traces: Iterable[Trace]) -> None:
    used = {span.stage for trace in traces for span in trace.spans}
    patches = [Patch(label=name, **_paint(LOOKS[name])) for name in STAGES if name in used]
    patches.append(Patch(label="GPU idle", **_paint(IDLE)))
    ax.legend(
        handles=patches,
        ncols=len(patches),
        loc="lower left",
        bbox_to_anchor=(0, 1.12 if ax.get_title("left") else 1),
        frameon=False,
        fontsize="small",
        handlelength=2.2,
        columnspacing=1.2,
    )


def _paint(look: Look) -> dict[str, Any]:
    red, green, blue = (int(look.colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    edge = look.colour if look is IDLE else look.edge(dark=False)
    return {
        "facecolor": (red, green, blue, look.opacity),
        "hatch": look.hatch,
        "edgecolor": edge,
        "linewidth": 0.6,
    }
