import json
from pathlib import Path
from zlib import crc32

import h5py
import numpy as np
import pytest

from data_scripts import files, make_volumes
from data_scripts.make_volumes import SHAPES, density


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let size S be two small volumes."""
    monkeypatch.setitem(SHAPES, "S", ((8, 6, 4), (12, 10, 8)))


def test_the_three_files_of_a_volume_hold_the_same_values(tiny: None, tmp_path: Path) -> None:
    folder = tmp_path / "volumes"
    assert make_volumes.main(["--size", "S", "--out", str(folder)]) == 0

    facts = json.loads((folder / "volumes.json").read_text())
    for name, shape in (("000", (8, 6, 4)), ("001", (12, 10, 8))):
        volume = np.load(folder / f"{name}.npy")
        with np.load(folder / f"{name}.npz") as arrays, h5py.File(folder / f"{name}.h5") as file:
            np.testing.assert_array_equal(arrays["volume"], volume)
            np.testing.assert_array_equal(file["volume"], volume)
            assert file["volume"].chunks is None
        assert (volume.dtype, volume.shape) == (np.float32, shape)
        assert facts[name] == {"shape": list(shape), "crc32": crc32(volume)}


def test_the_same_seed_gives_the_same_arrays_and_another_gives_others(
    tiny: None, tmp_path: Path
) -> None:
    seen = []
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert (
            make_volumes.main(["--size", "S", "--seed", seed, "--out", str(tmp_path / name)]) == 0
        )
        seen.append((tmp_path / name / files.CHECKSUMS).read_bytes())

    assert seen[0] == seen[1] != seen[2]


def test_what_is_there_is_kept(
    tiny: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert make_volumes.main(["--size", "S", "--out", str(tmp_path / "volumes")]) == 0

    assert "2 volumes, already there" in capsys.readouterr().out


def test_a_density_is_positive_and_clumped_around_one() -> None:
    field = density((32, 32, 32), np.random.default_rng(1))

    assert field.min() > 0
    assert field.mean(dtype=float) == pytest.approx(1)
    neighbours = np.corrcoef(field[1:].ravel(), field[:-1].ravel())[0, 1]
    assert neighbours > 0.5  # white noise would have 0


def test_the_sizes_are_those_of_the_lecture() -> None:
    sizes = {size: [4 * np.prod(shape) >> 20 for shape in SHAPES[size]] for size in SHAPES}

    assert sizes == {"S": [8, 8], "M": [8, 32, 150], "L": [150] * 8}
    assert SHAPES["M"][-1][0] == 600  # planes of 256 KiB each
