"""What a program that is not ours finds in the files."""

import gc
import sqlite3
import warnings
import zipfile
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot
import webdataset

from data_scripts import native
from data_scripts.as_npz import npz_name
from data_scripts.blocks import EVENTS_AT_ONCE
from data_scripts.formats import FORMATS
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


def written(name: str, events: Events, folder: Path) -> Path:
    entry, write = FORMATS[name]
    write(events, folder / entry)
    return folder / entry


def test_npz_deflate_holds_the_same_in_compressed_members(events: Events, tmp_path: Path) -> None:
    path = written("npz-deflate", events, tmp_path) / npz_name(300)
    with zipfile.ZipFile(path) as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    with np.load(path) as arrays:
        np.testing.assert_array_equal(arrays["pulses"], events[300])


@pytest.mark.parametrize(
    ("name", "chunks", "codec"),
    [
        ("hdf5", None, None),
        ("hdf5-chunked", (512, 4), None),
        ("hdf5-gzip", (512, 4), "gzip"),
        ("hdf5-misfit", (61354, 1), "gzip"),  # all there is: fewer rows than such a chunk has
    ],
)
def test_the_variants_of_hdf5_differ_in_chunks_and_codec(
    name: str, chunks: tuple[int, int] | None, codec: str | None, events: Events, tmp_path: Path
) -> None:
    with h5py.File(written(name, events, tmp_path)) as file:
        pulses = file["pulses"]
        assert (pulses.chunks, pulses.compression) == (chunks, codec)
        np.testing.assert_array_equal(pulses[:], events.pulses)


def test_parquet_zstd_is_one_row_group(events: Events, tmp_path: Path) -> None:
    file = pq.ParquetFile(written("parquet-zstd", events, tmp_path))

    assert file.num_row_groups == 1
    assert file.metadata.row_group(0).column(1).compression == "ZSTD"
    np.testing.assert_array_equal(file.read()["time"].to_numpy(), events.pulses[:, 0])


def test_sqlite_finds_the_pulses_of_an_event_by_an_index(events: Events, tmp_path: Path) -> None:
    query = "SELECT time, charge, sensor_id, auxiliary FROM pulses WHERE event_row = 300"
    with closing(sqlite3.connect(written("sqlite", events, tmp_path))) as database:
        plan = database.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
        pulses = database.execute(query).fetchall()
        table = database.execute("SELECT * FROM events").fetchall()

    assert "USING INDEX pulses_of_event" in plan[0][-1]
    np.testing.assert_array_equal(np.float32(pulses), events[300])
    assert table == [(row, *event) for row, event in enumerate(events.table.tolist())]
    assert [path.name for path in tmp_path.iterdir()] == ["events.db"]


def test_webdataset_reads_the_shards(events: Events, tmp_path: Path) -> None:
    folder = written("tar", events, tmp_path)
    shards = sorted(str(path) for path in folder.glob("*.tar"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset leaves its files open
        samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode())
        gc.collect()

    assert len(shards) == 3
    assert [sample["__key__"] for sample in samples] == [f"{index:06d}" for index in range(600)]
    for index in (0, 249, 250, 599):
        np.testing.assert_array_equal(samples[index]["npy"], events[index])
        assert tuple(samples[index]["json"].values()) == events.table[index].item()


def test_the_index_of_the_shards_says_where_each_event_is(events: Events, tmp_path: Path) -> None:
    folder = written("tar", events, tmp_path)
    shard, first, size = np.load(folder / "index.npy")[300]
    member = (folder / f"events-{shard:05d}.tar").read_bytes()[first:][:size]
    (tmp_path / "300.npy").write_bytes(member)

    np.testing.assert_array_equal(np.load(tmp_path / "300.npy"), events[300])


def test_root_is_a_tree_with_an_entry_per_event(events: Events, tmp_path: Path) -> None:
    with uproot.open({written("root", events, tmp_path): "events"}) as tree:
        assert tree.num_entries == 600
        assert tree.common_entry_offsets() == [0, 256, 512, 600]
        assert tree["sensor_id"].typename == "int16_t[]"
        np.testing.assert_array_equal(tree["time"].array(library="np")[300], events[300][:, 0])
        np.testing.assert_array_equal(
            tree["energy_gev"].array(library="np"), events.table["energy_gev"]
        )
