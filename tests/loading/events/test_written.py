import gc
import warnings
from pathlib import Path

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import webdataset

from course_utils.loading.events import EventArrays

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def events(all_formats: Path) -> EventArrays:
    return EventArrays.load(all_formats)


def test_hdf5_variants_differ_only_in_their_chunks(all_formats: Path, events: EventArrays) -> None:
    for name, chunks, codec in (
        ("events", None, None),
        ("events-chunked", (512, 4), None),
        ("events-gzip", (512, 4), "gzip"),
        ("events-misfit", (61354, 1), "gzip"),  # all rows, which are fewer than in a full chunk
    ):
        with h5py.File(all_formats / f"{name}.h5") as file:
            assert (file["pulses"].chunks, file["pulses"].compression) == (chunks, codec)
            np.testing.assert_array_equal(file["events"][:], events.table)


def test_parquet_has_small_dtypes_and_whole_events(all_formats: Path, events: EventArrays) -> None:
    for name, edges, codec in (("", [256, 512, 600], "SNAPPY"), ("-zstd", [600], "ZSTD")):
        file = pq.ParquetFile(all_formats / f"pulses{name}.parquet")
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        rows = np.cumsum([group.num_rows for group in groups])
        assert rows.tolist() == events.offsets[edges].tolist()
        assert groups[0].column(1).compression == codec
        types = [str(kind) for kind in file.schema_arrow.types]
        assert types == ["int64", "float", "float", "int16", "bool"]
        ids = file.read(columns=["event_id"])["event_id"].to_numpy()
        wanted = np.repeat(events.table["event_id"], np.diff(events.offsets))
        np.testing.assert_array_equal(ids, wanted)


def test_webdataset_reads_the_shards(all_formats: Path, events: EventArrays) -> None:
    shards = sorted(map(str, (all_formats / "tar").glob("*.tar")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset does not close its files
        samples = list(webdataset.WebDataset(shards, shardshuffle=False).decode())
        gc.collect()
    assert len(shards) == 3
    assert [sample["__key__"] for sample in samples] == [f"{index:06d}" for index in range(600)]
    for index in (0, 249, 250, 599):
        np.testing.assert_array_equal(samples[index]["npy"], events[index])
        assert tuple(samples[index]["json"].values()) == events.table[index].item()
