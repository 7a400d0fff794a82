"""The course's own layout: writing events, and finding them from other formats."""

import zlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from course_utils.loading import events

PULSES = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_blocks_are_loaded_as_one_and_can_be_subsampled(tmp_path: Path) -> None:
    table = np.zeros(3, events.EVENT)
    table["event_id"] = [7, 3, 5]
    blocks = [(PULSES[:2], np.array([2])), (PULSES[2:], np.array([0, 4]))]
    assert events.write_events(tmp_path, table, blocks) == 6
    arrays = events.EventArrays.load(tmp_path)
    assert arrays.offsets.tolist() == [0, 2, 2, 6]
    np.testing.assert_array_equal(arrays.table, table)
    np.testing.assert_array_equal(arrays[2], PULSES[2:])
    assert isinstance(arrays.pulses, np.memmap)
    crc32 = pq.read_table(tmp_path / "events.parquet")["crc32"].to_pylist()
    assert crc32 == [zlib.crc32(part.tobytes()) for part in (PULSES[:2], PULSES[:0], PULSES[2:])]
    (tmp_path / "some").mkdir()
    arrays.take([2, 0]).save(tmp_path / "some")
    some = events.EventArrays.load(tmp_path / "some")
    assert some.table["event_id"].tolist() == [5, 7]
    np.testing.assert_array_equal(some[0], arrays[2])
    np.testing.assert_array_equal(some[1], arrays[0])


def test_file_is_identical_to_one_that_numpy_writes(tmp_path: Path) -> None:
    for rows in (0, 1, 10**6):
        folder, pulses = tmp_path / str(rows), np.ones((rows, 4), np.float32)
        folder.mkdir()
        events.write_events(folder, np.zeros(1, events.EVENT), [(pulses, np.array([rows]))])
        np.save(tmp_path / "numpy.npy", pulses)
        assert (folder / "npy/pulses.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()


def test_zenith_zero_is_up_and_sensors_are_accurate_to_a_millimeter(tmp_path: Path) -> None:
    vectors = events.unit_vectors(
        np.float32([0, 0, np.pi / 2]), np.float32([0, np.pi / 2, np.pi / 2])
    )
    np.testing.assert_allclose(vectors, [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=1e-6)
    events.write_sensors(tmp_path, np.array([[1.5, -2.0004, 3], [0, 0, 0]], np.float32))
    assert (tmp_path / "sensor_geometry.csv").read_text() == (
        "sensor_id,x,y,z\n0,1.500,-2.000,3.000\n1,0.000,0.000,0.000\n"
    )
    assert events.read_sensors(tmp_path).tolist() == [[1.5, -2, 3], [0, 0, 0]]
