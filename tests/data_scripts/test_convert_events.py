"""Adding formats, and importing files with the schema of the public IceCube data."""

import shutil
from collections.abc import Callable
from pathlib import Path

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


def take_in(public: Path, *options: str, to: str = "icecube") -> tuple[int, Path]:
    folder = public.parent / to
    return main([str(folder), "--kaggle", str(public), *options]), folder


def test_public_data_are_imported_into_our_layout(
    public: Path, monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    monkeypatch.setattr(kaggle, "_PULSES_AT_ONCE", 3)
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

    assert take_in(public, "--batches", "99", to="none")[0] == 1
    assert "does not contain batch [99]" in capsys.readouterr().err
    code, second = take_in(public, "--batches", "2", "--to", "npz", "hdf5", "parquet", to="second")
    assert (code, len(EventArrays.load(second))) == (0, 2)
    assert {"npz", "events.h5", "pulses.parquet"} <= {path.name for path in second.iterdir()}

    shutil.rmtree(public)
    assert take_in(public)[0] == 0
    assert "already exists" in capsys.readouterr().out


def test_invalid_public_files_are_named(public: Path, capsys: Said) -> None:
    path = public / "train/batch_1.parquet"
    whole = pq.read_table(path)

    def charged(value: float | None) -> pa.Table:
        charges = pa.array([value, *whole["charge"].to_pylist()[1:]])
        return whole.set_column(whole.column_names.index("charge"), "charge", charges)

    problems: dict[str, Callable[[], object]] = {
        "charge": lambda: pq.write_table(whole.drop_columns("charge"), path),
        "not those of train_meta": lambda: pq.write_table(batch_table(1, [1, 2, 3]), path),
        "fewer pulses": lambda: pq.write_table(whole.slice(0, 5), path),
        "a value is missing": lambda: pq.write_table(charged(None), path),
        "too large": lambda: pq.write_table(charged(1e300), path),
        "": lambda: path.write_bytes(b"PAR1 and not much more"),
    }
    for problem, damage in problems.items():
        damage()
        code, folder = take_in(public)
        (said,) = capsys.readouterr().err.splitlines()
        assert code == 1, problem
        assert f"{path} does not fit" in said
        assert problem in said
        assert said.endswith("Download the file again.")
        assert not folder.exists()


def test_missing_truncated_and_corrupted_formats_are_written_again(
    tmp_path: Path, events_folder: Path, capsys: Said
) -> None:
    folder = Path(shutil.copytree(events_folder, tmp_path / "events"))
    (folder / "events.h5").unlink()
    (folder / "npz/000/000300.npz").write_bytes(b"")
    add_formats(folder, ["npz", "hdf5", "parquet"])
    assert "pulses.parquet: already exists" in capsys.readouterr().out
    for name in (files.CHECKSUMS, files.MANIFEST):
        assert (folder / name).read_bytes() == (events_folder / name).read_bytes()
    assert files.corrupted(folder) == []

    for name in ("events.h5", "npz/000/000300.npz"):
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)
    assert make_events.main(["--check", "--size", "S", "--out", str(folder)]) == 1
    assert capsys.readouterr().err.endswith(
        "(events.h5, npz/000/000300.npz). Delete events.h5, npz there, and write it again with "
        f"`python -m data_scripts.convert_events {folder} --to npz hdf5`.\n"
    )

    assert main([str(tmp_path / "nothing"), "--to", "npz"]) == 1
    assert capsys.readouterr().err.endswith("Run make_events first.\n")
    pulses = folder / "npy/pulses.npy"
    pulses.write_bytes(pulses.read_bytes()[:-1] + b"x")
    assert main([str(folder), "--to", "sqlite"]) == 1
    assert "npy/pulses.npy" in capsys.readouterr().err
    assert not (folder / "events.db").exists()
