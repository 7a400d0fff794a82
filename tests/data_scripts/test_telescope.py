import numpy as np
import pytest

from data_scripts.telescope import (
    FAINTEST,
    GROUP_INDEX,
    LIGHT_SPEED,
    NEAREST,
    PHASE_INDEX,
    SENSORS,
    SENSORS_PER_STRING,
    Particles,
    arrivals,
    sensor_positions,
)

both_kinds = pytest.mark.parametrize("track", [True, False])


def test_86_strings_of_60_sensors_hang_in_a_cubic_kilometre() -> None:
    positions = sensor_positions()
    strings = positions.reshape(-1, SENSORS_PER_STRING, 3)
    steps = -np.diff(strings[..., 2], axis=1)
    outer = strings[:78, 0, :2]
    distance = np.linalg.norm(outer[:, None] - outer, axis=-1)
    np.fill_diagonal(distance, np.inf)

    assert positions.shape == (SENSORS, 3) == (5160, 3)
    assert positions.dtype == np.float32
    assert np.abs(positions).max() < 620
    assert np.ptp(strings[..., :2], axis=1).max() == 0
    np.testing.assert_allclose(steps[:78], 17)
    np.testing.assert_allclose(steps[78:], 7)
    np.testing.assert_allclose(distance.min(axis=1), 125, rtol=1e-4)


def particle(*, track: bool, energy: float = 1e5) -> Particles:
    return Particles(
        vertex=np.array([[10.0, -20.0, 30.0]], np.float32),
        travel=np.array([[0.6, 0.0, -0.8]], np.float32),
        energy=np.array([energy], np.float32),
        track=np.array([track]),
    )


@both_kinds
def test_light_of_a_cascade_is_a_sphere_and_that_of_a_track_its_cherenkov_cone(track: bool) -> None:
    source = particle(track=track)
    light = arrivals(source)
    to_sensor = sensor_positions()[light.sensor].astype(float) - source.vertex[0]
    distance = np.linalg.norm(to_sensor, axis=1)
    along, angle = to_sensor @ source.travel[0], np.arccos(1 / PHASE_INDEX)
    across = np.sqrt(distance**2 - along**2).clip(NEAREST)
    sphere = distance.clip(NEAREST) * GROUP_INDEX
    cone = along - across / np.tan(angle) + across / np.sin(angle) * GROUP_INDEX

    np.testing.assert_allclose(light.time, (cone if track else sphere) / LIGHT_SPEED, atol=1.0)


@both_kinds
def test_no_sensor_out_of_reach_would_have_seen_more_than_the_faintest_light(
    track: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = set(arrivals(particle(track=track)).sensor.tolist())
    monkeypatch.setattr(Particles, "reach", np.array([5000.0], np.float32))
    everywhere = arrivals(particle(track=track))

    assert len(everywhere.sensor) == SENSORS
    missed = [s not in reached for s in everywhere.sensor.tolist()]
    # light is strongest along the cone, so the reach of a cascade is short by up to that factor
    assert everywhere.mean[missed].max() < 1.8 * FAINTEST


@both_kinds
def test_farther_away_is_less_light_and_more_energy_is_more(track: bool) -> None:
    light = arrivals(particle(track=track))
    near, far = light.distance < 60, light.distance > 150
    dim, bright = (arrivals(particle(track=track, energy=energy)) for energy in (1e3, 1e4))

    assert light.mean[near].min() > light.mean[far].max()
    assert bright.mean.sum() > 2 * dim.mean.sum()
