"""Lay out the neutrino telescope: 86 strings of 60 light sensors in a cubic kilometre of ice.

The plan follows IceCube (Aartsen et al. 2017, JINST 12 P03012): 78 strings on a triangular grid,
17 m between sensors, and 8 strings in the middle with 7 m between sensors for faint events.
"""

import numpy as np
from numpy.typing import NDArray

SENSORS_PER_STRING = 60
STRINGS = 86
SENSORS = STRINGS * SENSORS_PER_STRING

_STRINGS_IN_ROW = (6, 7, 8, 9, 10, 10, 9, 8, 7, 4)
_SPACING_M = 125.0
_HALF_HEIGHT_M = 501.5
_INNER_RING_M = 72.0
_INNER_PAIR_M = 42.0


def _outer_strings() -> NDArray[np.float64]:
    """Return x, y of the 78 strings of the triangular grid, shape (78, 2), in metres."""
    widest = _STRINGS_IN_ROW.index(max(_STRINGS_IN_ROW))
    rows = []
    for row, length in enumerate(_STRINGS_IN_ROW):
        # each row is shifted by half a spacing: outwards up to the widest row, inwards after it
        start = abs(row - widest) / 2
        x = (start + np.arange(length)) * _SPACING_M
        rows.append(np.column_stack([x, np.full(length, row * _SPACING_M * np.sqrt(0.75))]))
    grid = np.concatenate(rows)
    grid -= grid.mean(axis=0)
    return grid


def _inner_strings(centre: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x, y of the 8 dense strings around `centre`, shape (8, 2), in metres."""
    angle = np.deg2rad([30, 90, 150, 210, 270, 330, 0, 180])
    radius = np.array([_INNER_RING_M] * 6 + [_INNER_PAIR_M] * 2)
    strings = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    strings += centre
    return strings


def sensor_positions() -> NDArray[np.float32]:
    """Return x, y, z of all sensors in metres, shape (5160, 3); sensor_id is the row.

    Sensors 60 k to 60 k + 59 hang on string k, from top to bottom.
    """
    outer = _outer_strings()
    nearest = outer[np.argmin((outer**2).sum(axis=1))]
    xy = np.concatenate([outer, _inner_strings(nearest)])
    depth = np.arange(SENSORS_PER_STRING)
    wide = _HALF_HEIGHT_M - 17.0 * depth
    dense = -_HALF_HEIGHT_M + 7.0 * depth[::-1]
    z = np.concatenate([np.tile(wide, len(outer)), np.tile(dense, STRINGS - len(outer))])
    return np.column_stack([np.repeat(xy, SENSORS_PER_STRING, axis=0), z]).astype(np.float32)
