import numpy as np

from data_scripts.telescope import SENSORS, SENSORS_PER_STRING, sensor_positions


def test_there_are_86_strings_of_60_sensors_in_a_cubic_kilometre() -> None:
    positions = sensor_positions()

    assert positions.shape == (SENSORS, 3) == (5160, 3)
    assert positions.dtype == np.float32
    assert np.abs(positions).max() < 620


def test_sensors_of_a_string_hang_below_each_other_at_17_or_7_metres() -> None:
    strings = sensor_positions().reshape(-1, SENSORS_PER_STRING, 3)

    assert np.ptp(strings[..., :2], axis=1).max() == 0
    steps = -np.diff(strings[..., 2], axis=1)
    np.testing.assert_allclose(steps[:78], 17)
    np.testing.assert_allclose(steps[78:], 7)


def test_each_outer_string_has_its_nearest_outer_neighbour_at_125_metres() -> None:
    xy = sensor_positions()[: 78 * SENSORS_PER_STRING : SENSORS_PER_STRING, :2]
    distance = np.linalg.norm(xy[:, None] - xy, axis=-1)
    np.fill_diagonal(distance, np.inf)

    np.testing.assert_allclose(distance.min(axis=1), 125, rtol=1e-4)
