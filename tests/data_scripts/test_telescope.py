import numpy as np
import pytest

from data_scripts.telescope.detector import (
    FAINTEST,
    GROUP_INDEX,
    LIGHT_SPEED,
    NEAREST,
    PHASE_INDEX,
    Particles,
    arrivals,
    sensor_positions,
)


def test_86_strings_of_60_sensors_fill_a_cubic_kilometer() -> None:
    positions = sensor_positions()
    strings = positions.reshape(86, 60, 3)
    steps = -np.diff(strings[..., 2], axis=1)
    outer = strings[:78, 0, :2]
    distance = np.linalg.norm(outer[:, None] - outer, axis=-1)
    np.fill_diagonal(distance, np.inf)

    assert np.abs(positions).max() < 620
    assert np.ptp(strings[..., :2], axis=1).max() == 0
    np.testing.assert_allclose(steps[:78], 17)
    np.testing.assert_allclose(steps[78:], 7)
    np.testing.assert_allclose(distance.min(axis=1), 125, rtol=1e-4)


@pytest.mark.parametrize("track", [True, False])
def test_cascade_light_is_a_sphere_and_track_light_a_cone(
    track: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def particle(energy: float) -> Particles:
        vertex, travel = np.float32([[10, -20, 30]]), np.float32([[0.6, 0, -0.8]])
        return Particles(vertex, travel, np.float32([energy]), np.array([track]))

    source = particle(1e5)
    light = arrivals(source)
    to_sensor = sensor_positions()[light.sensor].astype(float) - source.vertex[0]
    distance = np.linalg.norm(to_sensor, axis=1)
    along, angle = to_sensor @ source.travel[0], np.arccos(1 / PHASE_INDEX)
    across = np.sqrt(distance**2 - along**2).clip(NEAREST)
    sphere = distance.clip(NEAREST) * GROUP_INDEX
    cone = along - across / np.tan(angle) + across / np.sin(angle) * GROUP_INDEX
    np.testing.assert_allclose(light.time, (cone if track else sphere) / LIGHT_SPEED, atol=1.0)

    near, far = light.distance < 60, light.distance > 150
    assert light.mean[near].min() > light.mean[far].max()
    dim, bright = (arrivals(particle(energy)) for energy in (1e3, 1e4))
    assert bright.mean.sum() > 2 * dim.mean.sum()

    monkeypatch.setattr(Particles, "reach", np.array([5000.0], np.float32))
    everywhere = arrivals(source)
    assert len(everywhere.sensor) == 5160
    missed = ~np.isin(everywhere.sensor, light.sensor)
    # Light is strongest along the cone, so the reach of a cascade is smaller by up to that factor.
    assert everywhere.mean[missed].max() < 1.8 * FAINTEST
