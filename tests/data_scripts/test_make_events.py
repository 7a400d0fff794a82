import filecmp
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data_scripts import files, make_events


def make(out: Path, *options: str) -> int:
    return make_events.main(["--size", "S", "--out", str(out), *options])


def same(one: Path, other: Path) -> bool:
    checksums = (files.CHECKSUMS, files.MANIFEST)
    return filecmp.cmpfiles(one, other, checksums, shallow=False)[0] == list(checksums)


def test_the_layout_is_that_of_the_course(events_folder: Path) -> None:
    manifest = json.loads((events_folder / "manifest.json").read_text())
    table = pq.read_table(events_folder / "events.parquet")
    pulses = np.load(events_folder / "npy/pulses.npy", mmap_mode="r")
    offsets = np.load(events_folder / "npy/offsets.npy")
    geometry = (events_folder / "sensor_geometry.csv").read_text().splitlines()

    assert manifest["counts"] == {"events": 600, "pulses": len(pulses)}
    assert {field.name: str(field.type) for field in table.schema} == {
        "event_id": "int64",
        "run_id": "int32",
        "azimuth": "float",
        "zenith": "float",
        "energy_gev": "float",
        "kind": "uint8",
        "crc32": "uint32",
    }
    assert len(table) == 600
    assert (pulses.dtype, pulses.shape[1]) == (np.float32, 4)
    assert (offsets.dtype, offsets[0], offsets[-1]) == (np.int64, 0, len(pulses))
    assert geometry[0] == "sensor_id,x,y,z"
    assert len(geometry) == 5161
    assert (events_folder / "npz/000/000599.npz").is_file()


@pytest.mark.usefixtures("small")
def test_the_same_seed_gives_the_same_bytes_and_another_gives_others(
    tmp_path: Path, events_folder: Path
) -> None:
    assert make(tmp_path / "again") == make(tmp_path / "other", "--seed", "2") == 0

    assert same(tmp_path / "again", events_folder)
    assert not same(tmp_path / "other", events_folder)


@pytest.mark.usefixtures("small")
def test_a_whole_set_is_not_made_again(
    events_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (events_folder / "manifest.json").stat().st_mtime_ns

    assert make(events_folder) == 0
    assert "600 events, already there" in capsys.readouterr().out
    assert (events_folder / "manifest.json").stat().st_mtime_ns == before


def test_l_leaves_out_the_folder_of_single_files() -> None:
    assert "npz" in make_events.FORMATS_OF["M"]
    assert "npz" not in make_events.FORMATS_OF["L"]


@pytest.mark.usefixtures("small")
def test_force_makes_a_damaged_set_whole(tmp_path: Path, events_folder: Path) -> None:
    shutil.copytree(events_folder, tmp_path / "events")
    (tmp_path / "events/events.h5").write_bytes(b"")

    assert make(tmp_path / "events") == 1
    assert make(tmp_path / "events", "--force") == 0
    assert same(tmp_path / "events", events_folder)
