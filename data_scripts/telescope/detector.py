"""Positions of the sensors of the neutrino telescope, and the light that reaches them.

The layout follows IceCube (Aartsen et al. 2017, JINST 12 P03012): 86 strings of 60 light sensors in
a cubic kilometer of ice. 78 strings form a triangular grid with 17 m between sensors, and 8 strings
in the middle have 7 m between sensors, for faint events.

A simple model describes the light of muon tracks and cascades. It has the right shapes, but does
not replace a photon simulation:

- arrival: Cherenkov cone of a straight track, sphere of a cascade, light at group velocity;
- delay by scattering: the Pandel function with the constants of AMANDA's ice
  (Ahrens et al. 2004, Nucl. Instrum. Meth. A 524, 169, arXiv:astro-ph/0407044);
- brightness: a muon loses a + b E per meter (Chirkin and Rhode 2004, arXiv:hep-ph/0407075); the
  light of a cascade is proportional to its energy, and strongest along the Cherenkov angle.

Lengths in meters, times in nanoseconds, energies in GeV, light in photoelectrons.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

SENSORS_PER_STRING = 60
STRINGS = 86
SENSORS = STRINGS * SENSORS_PER_STRING

_STRINGS_IN_ROW = (6, 7, 8, 9, 10, 10, 9, 8, 7, 4)
_SPACING_M = 125.0
_HALF_HEIGHT_M = 501.5
_INNER_RING_M = 72.0
_INNER_PAIR_M = 42.0

LIGHT_SPEED = 0.299792458
PHASE_INDEX, GROUP_INDEX = 1.32, 1.356
CONE_ANGLE = float(np.arccos(1 / PHASE_INDEX))
EXTINCTION = 40.0
SCATTERING = 33.3
DELAY = 1 / (1 / 557 + LIGHT_SPEED / PHASE_INDEX / 98)
JITTER = 2.0
NEAREST = 5.0
FAINTEST = 0.02

TRACK_LIGHT = 40.0
CRITICAL_ENERGY = 720.0
CASCADE_LIGHT = 110.0


def _outer_strings() -> NDArray[np.float64]:
    """Return x, y of the 78 strings of the triangular grid, shape (78, 2), in meters."""
    widest = _STRINGS_IN_ROW.index(max(_STRINGS_IN_ROW))
    rows = []
    for row, length in enumerate(_STRINGS_IN_ROW):
        # Each row is shifted by half a spacing, outwards up to the widest row, then inwards.
        start = abs(row - widest) / 2
        x = (start + np.arange(length)) * _SPACING_M
        rows.append(np.column_stack([x, np.full(length, row * _SPACING_M * np.sqrt(0.75))]))
    grid = np.concatenate(rows)
    grid -= grid.mean(axis=0)
    return grid


def _inner_strings(center: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x, y of the 8 dense strings around `center`, shape (8, 2), in meters."""
    angle = np.deg2rad([30, 90, 150, 210, 270, 330, 0, 180])
    radius = np.array([_INNER_RING_M] * 6 + [_INNER_PAIR_M] * 2)
    strings = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    strings += center
    return strings


def sensor_positions() -> NDArray[np.float32]:
    """Return x, y, z of all sensors in meters, shape (5160, 3); sensor_id is the row.

    Sensors 60 k to 60 k + 59 are on string k, from top to bottom.
    """
    outer = _outer_strings()
    nearest = outer[np.argmin((outer**2).sum(axis=1))]
    xy = np.concatenate([outer, _inner_strings(nearest)])
    depth = np.arange(SENSORS_PER_STRING)
    wide = _HALF_HEIGHT_M - 17.0 * depth
    dense = -_HALF_HEIGHT_M + 7.0 * depth[::-1]
    z = np.concatenate([np.tile(wide, len(outer)), np.tile(dense, STRINGS - len(outer))])
    return np.column_stack([np.repeat(xy, SENSORS_PER_STRING, axis=0), z]).astype(np.float32)


_SENSORS = sensor_positions()


@dataclass(frozen=True)
class Particles:
    """Straight tracks and point-like cascades, one row each, at `vertex` at time 0."""

    vertex: Floats  # (n, 3)
    travel: Floats  # (n, 3), unit vectors
    energy: Floats
    track: NDArray[np.bool_]

    @property
    def brightness(self) -> Floats:
        """Light at a distance of 1 m without absorption."""
        per_track = TRACK_LIGHT * (1 + self.energy / CRITICAL_ENERGY)
        return np.where(self.track, per_track, CASCADE_LIGHT * self.energy)

    @property
    def dilution(self) -> Ints:
        """Exponent of the distance in the decrease of light: 1 for a line, 2 for a point."""
        return np.where(self.track, 1, 2)

    @property
    def reach(self) -> Floats:
        """Distance in meters at which the light falls to FAINTEST."""
        reach = np.full(len(self.energy), 100.0)
        for _ in range(4):  # converges to within 1 m
            thinned = self.brightness / reach**self.dilution
            reach = np.maximum(EXTINCTION * np.log(thinned / FAINTEST), NEAREST)
        return reach.astype(np.float32)


class Arrivals(NamedTuple):
    """Light of particle `event` at `sensor`, one entry per pair; time without scattering."""

    event: Ints
    sensor: Ints
    mean: Floats
    time: Floats
    distance: Floats


def arrivals(particles: Particles) -> Arrivals:
    """Return the light of all particles at all sensors within reach."""
    event, sensor = _pairs_in_reach(particles)
    track = particles.track[event]
    to_sensor = _SENSORS[sensor] - particles.vertex[event]
    along = np.einsum("ij,ij->i", to_sensor, particles.travel[event])
    squared = np.einsum("ij,ij->i", to_sensor, to_sensor) - np.where(track, along**2, 0)
    distance = np.sqrt(np.maximum(squared, NEAREST**2))

    path = np.where(track, distance / np.sin(CONE_ANGLE), distance)
    emitted = np.where(track, along - distance / np.tan(CONE_ANGLE), 0)
    time = (emitted + path * GROUP_INDEX) / LIGHT_SPEED

    off_cone = np.abs(along / distance - np.cos(CONE_ANGLE))
    forward = np.where(track, 1, 1.6 * np.exp(-off_cone))
    thinned = particles.brightness[event] / distance ** particles.dilution[event]
    return Arrivals(
        event, sensor, thinned * np.exp(-distance / EXTINCTION) * forward, time, distance
    )


def _pairs_in_reach(particles: Particles) -> tuple[Ints, Ints]:
    """Return the (event, sensor) pairs in reach, found with one matrix product."""
    vertex = particles.vertex
    axis = particles.travel * particles.track[:, None]
    squared = (_SENSORS**2).sum(axis=1) - 2 * vertex @ _SENSORS.T
    squared += (vertex**2).sum(axis=1, keepdims=True)
    squared -= (axis @ _SENSORS.T - (axis * vertex).sum(axis=1, keepdims=True)) ** 2
    event, sensor = np.nonzero(squared < particles.reach[:, None] ** 2)
    return event, sensor
