"""Draw what happened: the energies, directions, kinds and runs of all events, before any light.

Runs differ from one another (noise, gain, dead strings, share of cascades) and the events of one
run share all of that: a random split lets a model recognise the runs it was trained on.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from course_utils.loading.events import CASCADE, TRACK
from data_scripts.detector import STRINGS

EVENT = np.dtype(
    [
        ("event_id", "<i8"),
        ("run_id", "<i4"),
        ("azimuth", "<f4"),
        ("zenith", "<f4"),
        ("energy_gev", "<f4"),
        ("kind", "u1"),
    ]
)
EVENTS_PER_RUN = 250
_LOWEST_GEV, _HIGHEST_GEV = 1e2, 1e6


@dataclass(frozen=True)
class Runs:
    """The conditions of each run: one row per run_id."""

    noise_hz: NDArray[np.float64]
    gain: NDArray[np.float64]
    dead: NDArray[np.bool_]  # (runs, strings)
    cascade_share: NDArray[np.float64]


def draw_runs(count: int, rng: np.random.Generator) -> Runs:
    """Draw the conditions of `count` runs; 12 % of all events are cascades on average."""
    return Runs(
        noise_hz=rng.normal(400, 60, count).clip(250, 550),
        gain=rng.normal(1.0, 0.08, count).clip(0.7, 1.3),
        dead=rng.random((count, STRINGS)) < 0.03,
        cascade_share=rng.beta(1.2, 8.8, count),
    )


def draw_events(count: int, rng: np.random.Generator) -> tuple[NDArray[np.void], Runs]:
    """Draw `count` events sorted by energy, as productions write them, and their runs.

    event_id follows the clock, so run_id = event_id // 250; on disk both look shuffled.
    """
    runs = draw_runs(-(-count // EVENTS_PER_RUN), rng)
    events = np.empty(count, EVENT)
    events["event_id"] = rng.permutation(count)
    events["run_id"] = events["event_id"] // EVENTS_PER_RUN
    events["azimuth"] = rng.uniform(0, 2 * np.pi, count)
    events["zenith"] = np.arccos(rng.uniform(-1, 1, count))
    events["energy_gev"] = np.sort(_power_law(count, rng))
    cascade = rng.random(count) < runs.cascade_share[events["run_id"]]
    events["kind"] = np.where(cascade, CASCADE, TRACK)
    return events, runs


def _power_law(count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw energies with density E^-2 by inverting its cumulative distribution."""
    return 1 / rng.uniform(1 / _HIGHEST_GEV, 1 / _LOWEST_GEV, count)
