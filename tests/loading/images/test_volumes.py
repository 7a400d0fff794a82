import re
from pathlib import Path

import numpy as np
import pytest

from course_utils.hardware.storage import slow_storage
from course_utils.loading.images import Volumes
from data_scripts import make_volumes
from keepfed.measure.trace import record

SHAPE = (20, 128, 128)  # planes of 64 KiB, 1.25 MiB in total
PLANE = 64 * 1024
FORMS = ("npz", "npy", "h5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "volumes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_volumes.SHAPES, "S", (SHAPE, (4, 8, 8)))
        assert make_volumes.main(["--size", "S", "--out", str(folder)]) == 0
    return folder


def test_volume_and_plane_are_exact(folder: Path) -> None:
    truth = np.load(folder / "000.npy")
    for form in FORMS:
        for fs in (None, slow_storage(folder, "laptop SSD")):
            volumes = Volumes(folder, form, fs=fs)
            assert (len(volumes), volumes.shapes) == (2, [SHAPE, (4, 8, 8)])
            np.testing.assert_array_equal(volumes[0], truth)
            np.testing.assert_array_equal(volumes[-1], np.load(folder / "001.npy"))
            for z in (0, 7, -1):
                np.testing.assert_array_equal(volumes.plane(0, z), truth[z])
            with pytest.raises(IndexError):
                volumes[2]
            with pytest.raises(IndexError):
                volumes.plane(0, 20)


def test_npz_sends_one_request_per_256_kib_even_for_a_plane(folder: Path) -> None:
    whole, plane = {}, {}
    for form in ("npz", "npy", "h5"):
        fs = slow_storage(folder, "laptop SSD", cache_mb=0)
        volumes = Volumes(folder, form, fs=fs)
        fs.reset_counters()
        with record() as trace:
            _ = volumes[0]
        assert [span.stage for span in trace.spans] == ["read", "decode"]
        whole[form] = fs.counters().requests
        fs.reset_counters()
        volumes.plane(0, 7)
        plane[form] = fs.counters().bytes_read

    assert whole["npy"] == 1
    assert 5 <= whole["npz"] <= 5 + 10  # 1.25 MiB, and the archive's directory
    assert whole["h5"] < 12  # independent of the size of a volume
    assert plane["npy"] == PLANE
    assert plane["h5"] < 1.1 * PLANE
    assert plane["npz"] > 20 * PLANE


@pytest.mark.parametrize("form", FORMS)
def test_damage_never_changes_values_silently(form: str, folder: Path, tmp_path: Path) -> None:
    for name in ("volumes.json", f"001.{form}"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    damaged, truth = tmp_path / f"001.{form}", np.load(folder / "001.npy")
    good, errors = damaged.read_bytes(), []
    broken, value = Volumes(tmp_path, form), good.index(truth[2, 3, 4].tobytes())
    for place in [value, *np.linspace(0, len(good) - 1, 50).astype(int).tolist()]:
        damaged.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            np.testing.assert_array_equal(broken[1], truth)
            assert place != value
        except OSError as error:
            errors.append(str(error))
    for left in (0, 600, -1, None):
        damaged.unlink() if left is None else damaged.write_bytes(good[:left])
        for read in (lambda: broken[1], lambda: broken.plane(1, 3)):
            with pytest.raises(OSError, match="is missing or corrupted") as caught:
                read()
            errors.append(str(caught.value))
    for said in errors:
        assert re.search(rf"volume 1: .*001\.{form} is missing or corrupted\. .*--check", said)


def test_missing_volumes_and_formats_are_reported(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make_volumes --out"):
        Volumes(tmp_path)
    with pytest.raises(ValueError, match="Choose npz, npy or h5"):
        Volumes(folder, "hdf5")
