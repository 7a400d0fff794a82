from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from data_scripts import native
from data_scripts.as_npz import npz_name
from data_scripts.blocks import EVENTS_AT_ONCE
from data_scripts.native import Events


@pytest.fixture(scope="module")
def events(events_folder: Path) -> Events:
    return native.load(events_folder)


def test_npz_holds_one_event_with_its_row_of_the_table(events_folder: Path, events: Events) -> None:
    for index in (0, 255, 256, len(events) - 1):
        with np.load(events_folder / "npz" / npz_name(index)) as archive:
            np.testing.assert_array_equal(archive["pulses"], events[index])
            assert archive["event"] == events.table[index]


def test_no_folder_gets_more_than_a_thousand_files() -> None:
    assert npz_name(999) == "000/000999.npz"
    assert npz_name(1000) == "001/001000.npz"
    assert npz_name(199_999) == "199/199999.npz"


def test_hdf5_holds_the_same_bytes(events_folder: Path, events: Events) -> None:
    with h5py.File(events_folder / "events.h5") as file:
        np.testing.assert_array_equal(file["pulses"][:], events.pulses)
        np.testing.assert_array_equal(file["offsets"][:], events.offsets)
        np.testing.assert_array_equal(file["events"][:], events.table)
        assert file["pulses"].dtype == np.float32


def test_parquet_holds_the_same_values_in_smaller_types(
    events_folder: Path, events: Events
) -> None:
    table = pq.read_table(events_folder / "pulses.parquet")
    counts = np.diff(events.offsets)

    for column, name in enumerate(("time", "charge", "sensor_id", "auxiliary")):
        np.testing.assert_array_equal(table[name].to_numpy(), events.pulses[:, column])
    np.testing.assert_array_equal(
        table["event_id"].to_numpy(), np.repeat(events.table["event_id"], counts)
    )
    assert [str(field.type) for field in table.schema] == [
        "int64",
        "float",
        "float",
        "int16",
        "bool",
    ]


def test_a_row_group_of_parquet_holds_whole_events(events_folder: Path, events: Events) -> None:
    file = pq.ParquetFile(events_folder / "pulses.parquet")
    rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]

    ends = events.offsets[EVENTS_AT_ONCE::EVENTS_AT_ONCE]
    assert np.cumsum(rows).tolist() == [*ends.tolist(), len(events.pulses)]
