"""Adding formats, and importing files with the schema of the public IceCube data."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from course_utils.loading.events import EventArrays
from data_scripts import files, kaggle, make_events
from data_scripts.convert_events import add_formats, main

COUNTS = {1: [3, 1, 4], 2: [2, 5]}  # pulses of each event, per batch
IDS = {1: [1000, 1024, 1048], 2: [2000, 2024]}
Said = pytest.CaptureFixture[str]


def batch_table(batch: int, ids: list[int]) -> pa.Table:
    rng, rows = np.random.default_rng(batch), sum(COUNTS[batch])
    columns = {
        "sensor_id": rng.integers(0, 5160, rows).astype(np.int16),
        "time": rng.integers(5000, 20000, rows),
        "charge": rng.integers(1, 100, rows) * 0.025,
        "auxiliary": rng.random(rows) < 0.5,
    }
    # pandas writes its index as the last column
    return pa.table({**columns, "event_id": np.repeat(ids, COUNTS[batch])})


@pytest.fixture
def public(tmp_path: Path) -> Path:
    """Write two batches in the format of Kaggle."""
    source = tmp_path / "public"
    (source / "train").mkdir(parents=True)
    for batch, ids in IDS.items():
        pq.write_table(batch_table(batch, ids), source / f"train/batch_{batch}.parquet")
    batches, last = np.array([1, 1, 1, 2, 2]), np.array([2, 3, 7, 1, 6])
    meta = {
        "batch_id": batches,
        "event_id": [*IDS[1], *IDS[2]],
        "first_pulse_index": last + 1 - [*COUNTS[1], *COUNTS[2]],
        "last_pulse_index": last,
        "azimuth": 0.1 * batches,
        "zenith": 0.2 * batches,
    }
    pq.write_table(pa.table(meta), source / "train_meta.parquet")
    sensors = "".join(f"{number},1.5,2.5,3.5\n" for number in range(5160))
    (source / "sensor_geometry.csv").write_text(f"sensor_id,x,y,z\n{sensors}")
    return source


@pytest.fixture
def folder(tmp_path: Path, events_folder: Path) -> Path:
    """Return a copy of the events that a test may change."""
    return Path(shutil.copytree(events_folder, tmp_path / "events"))


def take_in(public: Path, *options: str) -> tuple[int, Path]:
    folder = public.parent / "icecube"
    return main([str(folder), "--kaggle", str(public), *options]), folder


@pytest.mark.parametrize("at_once", [3, 1_000_000])
def test_public_data_are_imported_into_our_layout(
    public: Path, at_once: int, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setattr(kaggle, "_PULSES_AT_ONCE", at_once)
    truth = pa.concat_tables(
        pq.read_table(public / f"train/batch_{batch}.parquet") for batch in COUNTS
    )
    code, folder = take_in(public)
    events = EventArrays.load(folder)

    assert code == 0
    assert np.diff(events.offsets).tolist() == [3, 1, 4, 2, 5]
    assert events.table["event_id"].tolist() == [1000, 1024, 1048, 2000, 2024]
    assert events.table["run_id"].tolist() == [1, 1, 1, 2, 2]
    np.testing.assert_allclose(events.table["zenith"], [0.2, 0.2, 0.2, 0.4, 0.4])
    for column, name in enumerate(("time", "charge", "sensor_id", "auxiliary")):
        expected = truth[name].to_numpy().astype(np.float32)
        np.testing.assert_array_equal(events.pulses[:, column], expected)
    assert np.isnan(events.table["energy_gev"]).all()
    assert set(events.table["kind"]) == {kaggle.UNKNOWN}
    assert (folder / "sensor_geometry.csv").read_text().startswith("sensor_id,x,y,z\n0,1.5")
    assert files.corrupted(folder) == []

    shutil.rmtree(public)
    assert take_in(public)[0] == 0
    assert "already exists" in capsys.readouterr().out


def test_one_batch_can_be_selected_and_unknown_ones_are_rejected(
    public: Path, capsys: Said
) -> None:
    assert take_in(public, "--batches", "99")[0] == 1
    assert "does not contain batch [99]" in capsys.readouterr().err
    code, folder = take_in(public, "--batches", "2", "--to", "npz", "hdf5", "parquet")
    assert code == 0
    assert len(EventArrays.load(folder)) == 2
    assert {"npz", "events.h5", "pulses.parquet"} <= {path.name for path in folder.iterdir()}
    assert main([str(public), "--to", "npz"]) == 1
    assert capsys.readouterr().err.endswith("Run make_events first.\n")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            lambda table: table.drop_columns("charge"),
            " has no column charge. Download the file of the competition",
        ),
        (lambda table: batch_table(1, [1, 2, 3]), " and train_meta.parquet do not match"),
        (lambda table: table.slice(0, 5), " and train_meta.parquet do not match. Download"),
        (None, " is not a complete Parquet file. Download it again."),
    ],
)
def test_invalid_public_files_are_named(
    public: Path, damage: Callable[[pa.Table], pa.Table] | None, sentence: str, capsys: Said
) -> None:
    path = public / "train/batch_1.parquet"
    if damage:
        pq.write_table(damage(pq.read_table(path)), path)
    else:
        path.write_bytes(b"PAR1 and not much more")
    code, folder = take_in(public)
    (said,) = capsys.readouterr().err.splitlines()

    assert code == 1
    assert f"batch_1.parquet{sentence}" in said
    assert not folder.exists()


def with_value(table: pa.Table, name: str, value: Any) -> pa.Table:
    """Return the table with another first value in a column."""
    column = pa.array([value, *table[name].to_pylist()[1:]])
    return table.set_column(table.column_names.index(name), name, column)


@pytest.mark.parametrize(
    ("file", "name", "value", "problem"),
    [
        ("train/batch_1", "charge", None, "has 1 missing value (null)"),
        (
            "train/batch_1",
            "charge",
            1e300,
            "has a value that is NaN or too large, 1e+300, in row 0",
        ),
        ("train_meta", "first_pulse_index", None, "has 1 missing value (null)"),
        (
            "train_meta",
            "azimuth",
            float("nan"),
            "has a value that is NaN or too large, nan, in row",
        ),
    ],
)
def test_values_that_cannot_be_stored_are_named(
    file: str, name: str, value: Any, problem: str, public: Path, capsys: Said
) -> None:
    path = public / f"{file}.parquet"
    pq.write_table(with_value(pq.read_table(path), name, value), path)
    code, folder = take_in(public)
    assert code == 1
    assert f"The column {name} of {path} {problem}" in capsys.readouterr().err
    assert not folder.exists()


def test_lists_and_unknown_sensors_are_named(public: Path, capsys: Said) -> None:
    path = public / "train/batch_1.parquet"
    table = pq.read_table(path)
    pq.write_table(with_value(table, "sensor_id", 20_000), path)
    assert take_in(public)[0] == 1
    assert "a sensor that is not in sensor_geometry.csv, which has 5160" in capsys.readouterr().err
    lists = pa.array([[charge] for charge in table["charge"].to_pylist()])
    pq.write_table(table.set_column(2, "charge", lists), path)
    assert take_in(public)[0] == 1
    assert "charge of" in (said := capsys.readouterr().err)
    assert "double> instead of numbers" in said


def test_missing_or_truncated_format_is_written_again(
    folder: Path, events_folder: Path, capsys: Said
) -> None:
    (folder / "events.h5").unlink()
    (folder / "npz/000/000300.npz").write_bytes(b"")
    assert list(add_formats(folder, ["npz", "hdf5", "parquet"])) == ["npz", "hdf5"]

    assert "pulses.parquet: already exists" in capsys.readouterr().out
    for name in (files.CHECKSUMS, files.MANIFEST):
        assert (folder / name).read_bytes() == (events_folder / name).read_bytes()
    assert files.corrupted(folder) == []


def test_corrupted_format_can_be_replaced_alone(folder: Path, capsys: Said) -> None:
    for name in ("events.h5", "npz/000/000300.npz"):
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    assert make_events.main(["--check", "--size", "S", "--out", str(folder)]) == 1
    assert capsys.readouterr().err.endswith(
        "(events.h5, npz/000/000300.npz). Delete events.h5, npz there, and write it again with "
        f"`python -m data_scripts.convert_events {folder} --to npz hdf5`.\n"
    )


def test_corrupted_events_are_not_converted(public: Path, capsys: Said) -> None:
    _, folder = take_in(public)
    pulses = folder / "npy/pulses.npy"
    pulses.write_bytes(pulses.read_bytes()[:-1] + b"x")
    capsys.readouterr()

    assert main([str(folder), "--to", "npz"]) == 1
    assert "(npy/pulses.npy). Delete" in capsys.readouterr().err
    assert files.corrupted(folder) == ["npy/pulses.npy"]
    assert not (folder / "npz").exists()
