import pickle
from pathlib import Path

import numpy as np

from course_utils.loading.events import read_labels, read_sensors, unit_vectors
from data_scripts.telescope import sensor_positions


def test_labels_are_arrays_sorted_by_energy(events_folder: Path) -> None:
    labels = read_labels(events_folder)

    assert len(labels) == 600
    assert (np.diff(labels.energy) >= 0).all()
    assert labels.energy.min() >= 2
    assert labels.direction.shape == (600, 3)
    np.testing.assert_allclose(np.linalg.norm(labels.direction, axis=1), 1, rtol=1e-5)


def test_labels_with_a_flipped_bit_are_right_or_an_error(
    events_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "events.parquet"
    whole = (events_folder / "events.parquet").read_bytes()
    path.write_bytes(whole)
    truth = pickle.dumps(read_labels(tmp_path))
    errors = 0
    # all over the file, and closer together in its footer, for which it has no checksum
    places = {*range(0, len(whole), 200), *range(len(whole) - 2500, len(whole), 20)}
    for place in places:
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            assert pickle.dumps(read_labels(tmp_path)) == truth
        except OSError as error:
            errors += f"{path} is corrupted" in str(error)

    assert errors > len(places) / 2


def test_zenith_zero_is_straight_above() -> None:
    vectors = unit_vectors(np.float32([0, 0, np.pi / 2]), np.float32([0, np.pi / 2, np.pi / 2]))

    np.testing.assert_allclose(vectors, [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=1e-6)


def test_sensors_are_where_the_detector_has_them(events_folder: Path) -> None:
    np.testing.assert_allclose(read_sensors(events_folder), sensor_positions(), atol=1e-3)
