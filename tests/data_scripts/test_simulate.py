import numpy as np
import pytest

from course_utils.loading.events import CASCADE
from data_scripts.telescope import simulate as telescope
from data_scripts.telescope.detector import SENSORS, SENSORS_PER_STRING

MANY = 50_000


def test_energies_directions_runs_and_kinds_are_distributed() -> None:
    events, runs = telescope.draw_events(MANY, np.random.default_rng(0))
    energy = events["energy_gev"]
    assert (np.diff(energy) >= 0).all()
    assert 100 <= energy[0] <= energy[-1] <= 1e6
    above = [(energy > limit).sum() for limit in (100, 1_000, 10_000)]
    assert above[0] / above[1] == pytest.approx(10, rel=0.1)  # E^-2
    assert above[1] / above[2] == pytest.approx(10, rel=0.2)
    places = events["azimuth"], np.cos(events["zenith"])
    octants, _, _ = np.histogram2d(*places, [4, 2], [[0, 2 * np.pi], [-1, 1]])
    np.testing.assert_allclose(octants, MANY / 8, rtol=0.05)
    assert sorted(events["event_id"]) == list(range(MANY))
    np.testing.assert_array_equal(events["run_id"], events["event_id"] // telescope.EVENTS_PER_RUN)
    assert len(runs.gain) == MANY // telescope.EVENTS_PER_RUN
    cascade = events["kind"] == CASCADE
    shares = np.bincount(events["run_id"], cascade) / telescope.EVENTS_PER_RUN
    assert 0.10 < cascade.mean() < 0.14
    assert np.corrcoef(shares, runs.cascade_share)[0, 1] > 0.9
    assert shares.std() > 0.05


def test_pulses_have_the_count_order_and_steps_of_public_data() -> None:
    events, runs = telescope.draw_events(500, np.random.default_rng(3))
    pulses, counts = telescope.simulate(events, runs, np.random.default_rng(4))
    assert len(pulses) == counts.sum()
    assert 70 < counts.mean() < 140
    assert counts.max() > 5 * np.median(counts)
    for event in np.split(pulses, counts.cumsum()[:-1]):
        assert (np.diff(event[:, 0]) >= 0).all()
        assert len(np.unique(event[event[:, 3] == 0, 2])) >= telescope.TRIGGER_SENSORS
    time, charge, sensor_id, auxiliary = pulses.T
    assert (time == time.round()).all()
    assert time.min() >= 0
    np.testing.assert_allclose(
        charge / telescope.CHARGE_STEP, (charge / telescope.CHARGE_STEP).round(), atol=1e-2
    )
    assert charge.min() > 0
    assert set(sensor_id) <= set(range(SENSORS))
    assert set(auxiliary) == {0, 1}
    assert runs.dead.any()
    string = sensor_id.astype(int) // SENSORS_PER_STRING
    assert not runs.dead[np.repeat(events["run_id"], counts), string].any()
