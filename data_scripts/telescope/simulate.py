"""Simulate events: draw the particles, and convert their light to pulses.

The energies, directions, kinds and runs of all events are drawn first. Conditions differ between
runs (noise, gain, dead strings, share of cascades), and all events of a run share them. With a
random split, a model can therefore recognize the runs it was trained on.

Light, detection, noise, trigger and the auxiliary flag follow, a block of events at a time. Time
and charge have the resolution of the public IceCube data, 1 ns and 0.025 photoelectrons.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.loading.events import CASCADE, EVENT, TRACK, unit_vectors
from data_scripts.telescope.detector import (
    DELAY,
    JITTER,
    SCATTERING,
    SENSORS,
    SENSORS_PER_STRING,
    STRINGS,
    Floats,
    Ints,
    Particles,
    arrivals,
)

EVENTS_PER_RUN = 250
_LOWEST_GEV, _HIGHEST_GEV = 1e2, 1e6

TRIGGER_TIME = 10_000.0
WINDOW = 20_000.0
TRIGGER_SENSORS = 8
CHARGE_STEP = 0.025


@dataclass(frozen=True)
class Runs:
    """Conditions of each run: one row per run_id."""

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
    """Draw `count` events and their runs, sorted by energy as simulations write them.

    event_id is in order of time, so run_id = event_id // 250. On disk both look shuffled.
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


class Pulses(NamedTuple):
    """Pulses of many events, flat: one entry per pulse in each array."""

    event: Ints
    sensor: Ints
    time: Floats
    charge: Floats

    def take(self, which: NDArray[np.bool_]) -> "Pulses":
        """Return the pulses for which `which` is true."""
        return Pulses._make(array[which] for array in self)


def simulate(events: NDArray[np.void], runs: Runs, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Return the pulses of all events, float32 (n, 4), and the number of pulses of each event.

    Columns: time in ns, charge in photoelectrons, sensor_id, auxiliary. Sorted by event and time.
    """
    pulses = _join([_signal(events, runs, rng), _noise(events, runs, rng)])
    time = pulses.time.round().clip(0)
    charge = pulses.charge * runs.gain[events["run_id"][pulses.event]]
    steps = (charge / CHARGE_STEP).round().clip(1)
    auxiliary = ~_has_near_hit(pulses, len(events))[pulses.event, pulses.sensor]
    table = np.stack([time, steps * CHARGE_STEP, pulses.sensor, auxiliary], axis=1)
    order = np.lexsort([pulses.sensor, time, pulses.event])
    return table.astype(np.float32)[order], np.bincount(pulses.event, minlength=len(events))


def _signal(events: NDArray[np.void], runs: Runs, rng: np.random.Generator) -> Pulses:
    """Return pulses from light. An event that does not trigger is placed again elsewhere."""
    parts, waiting = [], np.arange(len(events))
    while len(waiting):
        pulses = _alive(_detect(events[waiting], rng), events[waiting], runs)
        fired = _has_near_hit(pulses, len(waiting)).sum(axis=1) >= TRIGGER_SENSORS
        kept = pulses.take(fired[pulses.event])
        parts.append(kept._replace(event=waiting[kept.event]))
        waiting = waiting[~fired]
    return _join(parts)


def _detect(events: NDArray[np.void], rng: np.random.Generator) -> Pulses:
    """Place each event at random, and draw the photons that the sensors detect."""
    light = arrivals(_place(events, rng))
    photons = rng.poisson(light.mean)
    lit = np.flatnonzero(photons)
    photons = photons[lit]
    # The electronics merge photons that arrive close together.
    pulses = np.minimum(photons, 1 + (2 * np.log(photons)).astype(int))
    of = np.repeat(lit, pulses)
    late = rng.standard_gamma(light.distance[of] / SCATTERING, dtype=np.float32) * DELAY
    jitter = rng.standard_normal(len(of), dtype=np.float32) * JITTER
    time = TRIGGER_TIME + light.time[of] + late + jitter
    charge = np.repeat(photons / pulses, pulses) * _single_photon(len(of), rng)
    return Pulses(light.event[of], light.sensor[of], time, charge)


def _place(events: NDArray[np.void], rng: np.random.Generator) -> Particles:
    """Place the events at random in a cylinder around the detector."""
    count = len(events)
    radius, angle = 600 * np.sqrt(rng.random(count)), rng.uniform(0, 2 * np.pi, count)
    height = rng.uniform(-550, 550, count)
    vertex = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)
    travel = -unit_vectors(events["azimuth"], events["zenith"])
    track = events["kind"] == TRACK
    # For a track, time 0 is its closest approach to the center of the detector.
    vertex -= np.where(track, (vertex * travel).sum(axis=1), 0)[:, None] * travel
    return Particles(vertex.astype(np.float32), travel, events["energy_gev"], track)


def _noise(events: NDArray[np.void], runs: Runs, rng: np.random.Generator) -> Pulses:
    """Return the noise pulses of all sensors, without any light."""
    mean = runs.noise_hz[events["run_id"]] * 1e-9 * WINDOW * SENSORS
    event = np.repeat(np.arange(len(events)), rng.poisson(mean))
    sensor = rng.integers(SENSORS, size=len(event))
    time = rng.random(len(event), dtype=np.float32) * WINDOW
    pulses = Pulses(event, sensor, time, _single_photon(len(event), rng))
    return _alive(pulses, events, runs)


def _alive(pulses: Pulses, events: NDArray[np.void], runs: Runs) -> Pulses:
    """Remove the pulses on strings that are dead in the run."""
    dead = runs.dead[events["run_id"][pulses.event], _string(pulses.sensor)]
    return pulses.take(~dead)


def _single_photon(count: int, rng: np.random.Generator) -> Floats:
    return (1 + 0.3 * rng.standard_normal(count, dtype=np.float32)).clip(0.1)


def _has_near_hit(pulses: Pulses, events: int) -> NDArray[np.bool_]:
    """Return which hits have another hit at most two sensors away, bool (events, sensors)."""
    hit = np.zeros((events, STRINGS, SENSORS_PER_STRING + 4), np.bool_)
    hit[pulses.event, _string(pulses.sensor), pulses.sensor % SENSORS_PER_STRING + 2] = True
    near = hit[..., :-4] | hit[..., 1:-3] | hit[..., 3:-1] | hit[..., 4:]
    return (near & hit[..., 2:-2]).reshape(events, SENSORS)


def _string(sensor: Ints) -> Ints:
    return sensor // SENSORS_PER_STRING


def _join(parts: list[Pulses]) -> Pulses:
    return Pulses._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
