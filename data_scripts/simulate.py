"""Turn events into pulses: light, detection, noise, trigger, and the auxiliary flag.

Time and charge come in the steps of the public IceCube data, 1 ns and 0.025 photoelectrons.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.loading.events import TRACK, unit_vectors
from data_scripts.catalogue import Runs
from data_scripts.detector import SENSORS, SENSORS_PER_STRING, STRINGS
from data_scripts.light import DELAY, JITTER, SCATTERING, Particles, arrivals

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

TRIGGER_TIME = 10_000.0
WINDOW = 20_000.0
TRIGGER_SENSORS = 8
CHARGE_STEP = 0.025


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
    """Return the pulses of all events, float32 (n, 4), and how many belong to each event.

    Columns: time in ns, charge in photoelectrons, sensor_id, auxiliary. Ordered by event and time.
    """
    pulses = _join([_signal(events, runs, rng), _noise(events, runs, rng)])
    time = pulses.time.round().clip(0)
    charge = pulses.charge * runs.gain[events["run_id"][pulses.event]]
    steps = (charge / CHARGE_STEP).round().clip(1)
    auxiliary = ~_in_company(pulses, len(events))[pulses.event, pulses.sensor]
    table = np.stack([time, steps * CHARGE_STEP, pulses.sensor, auxiliary], axis=1)
    order = np.lexsort([pulses.sensor, time, pulses.event])
    return table.astype(np.float32)[order], np.bincount(pulses.event, minlength=len(events))


def _signal(events: NDArray[np.void], runs: Runs, rng: np.random.Generator) -> Pulses:
    """Return pulses from light; an event that does not trigger is thrown again elsewhere."""
    parts, waiting = [], np.arange(len(events))
    while len(waiting):
        pulses = _alive(_detect(events[waiting], rng), events[waiting], runs)
        fired = _in_company(pulses, len(waiting)).sum(axis=1) >= TRIGGER_SENSORS
        kept = pulses.take(fired[pulses.event])
        parts.append(kept._replace(event=waiting[kept.event]))
        waiting = waiting[~fired]
    return _join(parts)


def _detect(events: NDArray[np.void], rng: np.random.Generator) -> Pulses:
    """Place each event at random and draw what the sensors see of its light."""
    light = arrivals(_place(events, rng))
    photons = rng.poisson(light.mean)
    lit = np.flatnonzero(photons)
    photons = photons[lit]
    # the electronics merge photons that come close together
    pulses = np.minimum(photons, 1 + (2 * np.log(photons)).astype(int))
    of = np.repeat(lit, pulses)
    late = rng.standard_gamma(light.distance[of] / SCATTERING, dtype=np.float32) * DELAY
    jitter = rng.standard_normal(len(of), dtype=np.float32) * JITTER
    time = TRIGGER_TIME + light.time[of] + late + jitter
    charge = np.repeat(photons / pulses, pulses) * _single_photon(len(of), rng)
    return Pulses(light.event[of], light.sensor[of], time, charge)


def _place(events: NDArray[np.void], rng: np.random.Generator) -> Particles:
    """Throw the events into a cylinder around the detector."""
    count = len(events)
    radius, angle = 600 * np.sqrt(rng.random(count)), rng.uniform(0, 2 * np.pi, count)
    height = rng.uniform(-550, 550, count)
    vertex = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1)
    travel = -unit_vectors(events["azimuth"], events["zenith"])
    track = events["kind"] == TRACK
    # time 0 of a track is where it passes nearest to the centre of the detector
    vertex -= np.where(track, (vertex * travel).sum(axis=1), 0)[:, None] * travel
    return Particles(vertex.astype(np.float32), travel, events["energy_gev"], track)


def _noise(events: NDArray[np.void], runs: Runs, rng: np.random.Generator) -> Pulses:
    """Return the pulses that all sensors give without any light."""
    mean = runs.noise_hz[events["run_id"]] * 1e-9 * WINDOW * SENSORS
    event = np.repeat(np.arange(len(events)), rng.poisson(mean))
    sensor = rng.integers(SENSORS, size=len(event))
    time = rng.random(len(event), dtype=np.float32) * WINDOW
    pulses = Pulses(event, sensor, time, _single_photon(len(event), rng))
    return _alive(pulses, events, runs)


def _alive(pulses: Pulses, events: NDArray[np.void], runs: Runs) -> Pulses:
    """Drop the pulses on strings that are dead in the run."""
    dead = runs.dead[events["run_id"][pulses.event], _string(pulses.sensor)]
    return pulses.take(~dead)


def _single_photon(count: int, rng: np.random.Generator) -> Floats:
    return (1 + 0.3 * rng.standard_normal(count, dtype=np.float32)).clip(0.1)


def _in_company(pulses: Pulses, events: int) -> NDArray[np.bool_]:
    """Return bool (events, sensors): hit, and so is a sensor at most two away on the string."""
    hit = np.zeros((events, STRINGS, SENSORS_PER_STRING + 4), np.bool_)
    hit[pulses.event, _string(pulses.sensor), pulses.sensor % SENSORS_PER_STRING + 2] = True
    near = hit[..., :-4] | hit[..., 1:-3] | hit[..., 3:-1] | hit[..., 4:]
    return (near & hit[..., 2:-2]).reshape(events, SENSORS)


def _string(sensor: Ints) -> Ints:
    return sensor // SENSORS_PER_STRING


def _join(parts: list[Pulses]) -> Pulses:
    return Pulses._make(np.concatenate(arrays) for arrays in zip(*parts, strict=True))
