"""The three data sets: what is in them, and that the same seed gives the same bytes."""

import json
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data_scripts import files, make_events, make_images, make_volumes
from data_scripts.make_volumes import SHAPES, density

SMALL_SHAPES = ((8, 6, 4), (12, 10, 8))
MAKERS = (make_events.main, make_images.main, make_volumes.main)


@pytest.fixture(scope="module", autouse=True)
def _small() -> object:
    """Let size S be 600 events, and two small volumes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_events.COUNTS, "S", 600)
        patch.setitem(SHAPES, "S", SMALL_SHAPES)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the small data sets, under the names of their modules."""
    folder = tmp_path_factory.mktemp("data")
    for main in MAKERS:
        assert main(["--size", "S", "--out", str(folder / main.__module__)]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("main", MAKERS, ids=["events", "images", "volumes"])
def test_the_same_seed_gives_the_same_bytes_another_gives_others_and_force_mends(
    main: Callable[[list[str]], int],
    made: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def sums(folder: Path) -> bytes:
        return (folder / files.CHECKSUMS).read_bytes()

    options = ["--size", "S", "--out", str(tmp_path / "data")]
    assert main([*options, "--seed", "2"]) == 0
    assert sums(tmp_path / "data") != sums(made / main.__module__)
    assert main([*options, "--seed", "1"]) == 1  # another set is there
    assert main([*options, "--force"]) == 0
    assert sums(tmp_path / "data") == sums(made / main.__module__)
    assert files.corrupted(tmp_path / "data") == []

    manifest = tmp_path / "data" / files.MANIFEST
    written = manifest.stat().st_mtime_ns
    assert main(options) == 0
    assert "already there" in capsys.readouterr().out
    assert manifest.stat().st_mtime_ns == written


def test_events_have_the_layout_of_the_course(made: Path) -> None:
    folder = made / make_events.__name__
    manifest = json.loads((folder / "manifest.json").read_text())
    table = pq.read_table(folder / "events.parquet")
    pulses = np.load(folder / "npy/pulses.npy", mmap_mode="r")
    offsets = np.load(folder / "npy/offsets.npy")
    geometry = (folder / "sensor_geometry.csv").read_text().splitlines()

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
    assert (folder / "npz/000/000599.npz").is_file()


def test_large_events_leave_out_the_folder_of_single_files() -> None:
    assert "npz" in make_events.FORMATS_OF["M"]
    assert "npz" not in make_events.FORMATS_OF["L"]


@pytest.mark.parametrize("total", [200, 2_000, 20_000])
def test_some_classes_of_images_are_many_times_rarer(total: int) -> None:
    counts = make_images.class_counts(total)

    assert sum(counts.values()) == total
    assert counts["cat"] == 15 * counts["retina"]


def test_images_are_square_colour_jpegs_that_differ_and_every_class_has_its_share(
    made: Path,
) -> None:
    contents, found = set(), dict.fromkeys(make_images.class_counts(200), 0)
    for path in (made / make_images.__name__).glob("*/*.jpg"):
        with Image.open(path) as image:
            assert (image.format, image.size, image.mode) == ("JPEG", (256, 256), "RGB")
        contents.add(path.read_bytes())
        found[path.parent.name] += 1

    assert len(contents) == 200
    assert len(found) == 8
    assert found == make_images.class_counts(200)


def test_without_scikit_image_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("data_scripts.make_images.find_spec", lambda name: None)

    assert make_images.main(["--size", "S", "--out", str(tmp_path / "images")]) == 1
    assert "run `pip install scikit-image`" in capsys.readouterr().err


def test_the_three_files_of_a_volume_hold_the_same_values(made: Path) -> None:
    folder = made / make_volumes.__name__
    facts = json.loads((folder / "volumes.json").read_text())
    for name, shape in zip(("000", "001"), SMALL_SHAPES, strict=True):
        volume = np.load(folder / f"{name}.npy")
        with np.load(folder / f"{name}.npz") as arrays, h5py.File(folder / f"{name}.h5") as file:
            np.testing.assert_array_equal(arrays["volume"], volume)
            np.testing.assert_array_equal(file["volume"], volume)
            assert file["volume"].chunks is None
        assert (volume.dtype, volume.shape) == (np.float32, shape)
        assert facts[name] == {"shape": list(shape), "crc32": crc32(volume)}


def test_a_density_is_positive_and_clumped_around_one() -> None:
    field = density((32, 32, 32), np.random.default_rng(1))

    assert field.min() > 0
    assert field.mean(dtype=float) == pytest.approx(1)
    neighbours = np.corrcoef(field[1:].ravel(), field[:-1].ravel())[0, 1]
    assert neighbours > 0.5  # white noise would have 0


def test_the_sizes_of_volumes_are_those_of_the_lecture() -> None:
    sizes = {size: [4 * np.prod(shape) >> 20 for shape in SHAPES[size]] for size in ("M", "L")}

    assert sizes == {"M": [8, 32, 150], "L": [150] * 8}
    assert SHAPES["M"][-1][0] == 600  # planes of 256 KiB each
