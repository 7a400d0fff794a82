"""The course's own layout: how events are written and how all other formats find them."""

import zlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from course_utils.loading.events import EVENT, EventArrays, write_events, write_sensors

PULSES = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_what_was_written_in_blocks_is_loaded_as_one_and_can_be_thinned(tmp_path: Path) -> None:
    table = np.zeros(3, EVENT)
    table["event_id"] = [7, 3, 5]
    blocks = [(PULSES[:2], np.array([2])), (PULSES[2:], np.array([1, 3]))]

    assert write_events(tmp_path, table, blocks) == 6
    events = EventArrays.load(tmp_path)
    assert len(events) == 3
    assert events.offsets.tolist() == [0, 2, 3, 6]
    np.testing.assert_array_equal(events.table, table)
    np.testing.assert_array_equal(events[2], PULSES[3:])
    assert isinstance(events.pulses, np.memmap)

    (tmp_path / "some").mkdir()
    events.take([2, 0]).save(tmp_path / "some")
    some = EventArrays.load(tmp_path / "some")
    assert some.table["event_id"].tolist() == [5, 7]
    np.testing.assert_array_equal(some[0], events[2])
    np.testing.assert_array_equal(some[1], events[0])


@pytest.mark.parametrize("rows", [0, 1, 10**6])
def test_the_file_is_what_numpy_itself_would_write(tmp_path: Path, rows: int) -> None:
    pulses = np.ones((rows, 4), np.float32)
    write_events(tmp_path, np.zeros(1, EVENT), [(pulses, np.array([rows]))])
    np.save(tmp_path / "numpy.npy", pulses)

    assert (tmp_path / "npy/pulses.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()


def test_every_event_has_the_checksum_of_its_pulses(tmp_path: Path) -> None:
    write_events(tmp_path, np.zeros(3, EVENT), [(PULSES, np.array([2, 0, 4]))])
    crc32 = pq.read_table(tmp_path / "events.parquet")["crc32"].to_pylist()

    assert crc32 == [zlib.crc32(part.tobytes()) for part in (PULSES[:2], PULSES[:0], PULSES[2:])]


def test_the_geometry_keeps_a_millimetre(tmp_path: Path) -> None:
    write_sensors(tmp_path, np.array([[1.5, -2.0004, 3]], np.float32))

    assert (tmp_path / "sensor_geometry.csv").read_text() == (
        "sensor_id,x,y,z\n0,1.500,-2.000,3.000\n"
    )
