"""Draw an event: where, when and how much light was detected."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from course_utils.loading.events.contract import Sample
from course_utils.loading.events.labels import CASCADE, TRACK
from keepfed.palette import VERMILION

if TYPE_CHECKING:  # workers import this package, and importing matplotlib takes 1 s
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

SENSORS_PER_STRING = 60


@cache
def colors() -> ListedColormap:
    """Return the color map of all pictures: color-blind safe, on light and dark pages."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    # The dark end of viridis would be invisible on a dark page.
    return ListedColormap(colormaps["viridis"](np.linspace(0.2, 1.0, 256)))


def draw_event(event: Sample, sensors: NDArray[np.float32]) -> Figure:
    """Draw one event in space, and as depth against time.

    Color is time and size is charge. Small gray dots are auxiliary pulses, mostly noise. The arrow
    shows the true direction and passes through the center of the light.

    Args:
        event: Sample of any dataset of events.
        sensors: x, y, z of all sensors, as `read_sensors` returns them.
    """
    import matplotlib.pyplot as plt
    from matplotlib.patheffects import withStroke

    pulses = event["pulses"].numpy()
    time, charge, sensor_id, auxiliary = pulses.T
    time, where, noise = time / 1000, sensors[sensor_id.astype(int)], auxiliary == 1
    light = {"c": time[~noise], "s": 5 + 12 * np.sqrt(charge[~noise].clip(max=100))}
    # Isolated noise pulses at distant times must not use up the color range.
    light |= dict(zip(("vmin", "vmax"), np.percentile(time[~noise], [5, 95]), strict=True))
    light |= {"cmap": colors(), "edgecolors": "gray", "linewidths": 0.3}
    with plt.style.context("course_utils.plots.style"):
        figure = plt.figure(figsize=(11, 5), layout="constrained")
        # Draw in the given order, because matplotlib would hide the arrow behind bright light.
        space = figure.add_subplot(1, 2, 1, projection="3d", computed_zorder=False)
        _draw_detector(space, sensors)
        # The arrow points from the origin of the particle to its destination.
        way = 450 * event["direction"].numpy()
        start = np.average(where[~noise], axis=0, weights=charge[~noise]) + way
        rim = [withStroke(linewidth=3.5, foreground="white")]
        arrow = {"color": VERMILION, "arrow_length_ratio": 0.08, "zorder": 4, "path_effects": rim}
        space.quiver(*start, *(-2 * way), linewidth=1.8, **arrow)
        space.scatter(*where[noise].T, s=3, c="gray", depthshade=False, zorder=3)
        drawn = space.scatter(*where[~noise].T, depthshade=False, zorder=3, **light)

        depth = figure.add_subplot(1, 2, 2)
        depth.scatter(time[noise], where[noise, 2], s=3, c="gray")
        depth.scatter(time[~noise], where[~noise, 2], **light)
        depth.set(xlabel="time (µs)", ylabel="height (m)", ylim=(-550, 550))
        depth.spines[["top", "right"]].set_visible(False)
        figure.colorbar(drawn, ax=depth, label="time (µs)")
        figure.suptitle(_title(event))
    plt.close(figure)  # otherwise the notebook shows the figure twice
    return figure


def _draw_detector(space: Any, sensors: NDArray[np.float32]) -> None:
    """Draw each string as a thin line from its top sensor to its bottom sensor."""
    for string in sensors.reshape(-1, SENSORS_PER_STRING, 3):
        space.plot(*string[[0, -1]].T, color="gray", linewidth=0.4, alpha=0.6)
    for axis in (space.xaxis, space.yaxis, space.zaxis):
        axis.set_pane_color((0, 0, 0, 0))
        axis.set_ticks([-500, 0, 500])
    space.set(xlabel="x (m)", ylabel="y (m)")
    space.grid(False)
    space.view_init(elev=15, azim=-47)
    space.set_box_aspect((1.2, 1.0, 1.0), zoom=1.1)


def _title(event: Sample) -> str:
    kind = {CASCADE: "cascade", TRACK: "track"}.get(event["kind"], "unknown kind")
    # The public IceCube data do not contain the energy.
    energy = "" if np.isnan(event["energy"]) else f", {10 ** event['energy']:,.0f} GeV"
    return f"event {event['event_id']}, {kind}{energy}, {event['n_pulses']:,} pulses"
