from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from course_utils.hardware.storage import slow_storage
from course_utils.loading.images import Volumes
from course_utils.loading.images.volumes import VolumeFormat
from course_utils.measure.trace import record
from data_scripts import make_volumes

FORMS = get_args(VolumeFormat)
SHAPE = (20, 128, 128)  # planes of 64 KiB, 1.25 MiB together
PLANE = 64 * 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "volumes"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(make_volumes.SHAPES, "S", (SHAPE, (4, 8, 8)))
        assert make_volumes.main(["--size", "S", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def truth(folder: Path) -> Any:
    return np.load(folder / "000.npy")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("emulated", [False, True])
def test_a_volume_and_a_plane_are_exact(
    form: VolumeFormat, emulated: bool, folder: Path, truth: Any
) -> None:
    fs = slow_storage(folder, "laptop SSD") if emulated else None
    volumes = Volumes(folder, form, fs=fs)

    assert (len(volumes), volumes.shapes) == (2, [SHAPE, (4, 8, 8)])
    np.testing.assert_array_equal(volumes[0], truth)
    np.testing.assert_array_equal(volumes[-1], np.load(folder / "001.npy"))
    for z in (0, 7, -1):
        np.testing.assert_array_equal(volumes.plane(0, z), truth[z])


@pytest.mark.parametrize("form", FORMS)
def test_a_dataset_of_planes_stops_at_the_end(form: VolumeFormat, folder: Path) -> None:
    volumes = Volumes(folder, form)
    with pytest.raises(IndexError):
        volumes[2]
    with pytest.raises(IndexError):
        volumes.plane(0, 20)


def requests(folder: Path, form: VolumeFormat, read: Callable[[Volumes], Any]) -> tuple[int, int]:
    """Return requests and bytes of one read."""
    fs = slow_storage(folder, "laptop SSD", cache_mb=0)
    volumes = Volumes(folder, form, fs=fs)
    fs.reset_counters()
    read(volumes)
    return fs.counters().requests, fs.counters().bytes_read


def test_npz_asks_for_every_256_kib_and_the_others_hardly_ever(folder: Path) -> None:
    asked = {form: requests(folder, form, lambda volumes: volumes[0])[0] for form in FORMS}

    assert asked["npy"] == 1
    assert 5 <= asked["npz"] <= 5 + 10  # 1.25 MiB, and the directory of the archive
    assert asked["h5"] < 12  # the same for a volume of any size


def test_a_plane_of_npz_costs_the_whole_volume_and_of_the_others_itself(folder: Path) -> None:
    read = {form: requests(folder, form, lambda volumes: volumes.plane(0, 7)) for form in FORMS}

    assert read["npy"] == (1, PLANE)
    assert read["h5"][1] < 1.1 * PLANE
    assert read["npz"][1] > 20 * PLANE


def test_numpy_maps_npy_and_silently_does_not_map_npz(folder: Path) -> None:
    assert isinstance(np.load(folder / "000.npy", mmap_mode="r"), np.memmap)
    with np.load(folder / "000.npz", mmap_mode="r") as arrays:
        assert not isinstance(arrays["volume"], np.memmap)


def test_reading_and_checking_are_marked(folder: Path) -> None:
    with record() as trace:
        Volumes(folder, "npy")[0]

    assert [span.stage for span in trace.spans] == ["read", "decode"]


@pytest.mark.slow
def test_workers_deliver_every_volume(folder: Path, truth: Any, start_method: str) -> None:
    loader = DataLoader(
        Volumes(folder, "h5"),
        batch_size=None,
        num_workers=1,
        multiprocessing_context=start_method,
        timeout=120,
    )
    first, second = loader

    assert torch.equal(first, torch.from_numpy(truth))
    assert second.shape == (4, 8, 8)


def damage(folder: Path, at: Path, form: VolumeFormat, change: Callable[[bytearray], Any]) -> Path:
    """Return a copy of the small volume's files, with one file changed."""
    for name in ("volumes.json", "000.npy"):
        (at / name).write_bytes((folder / name).read_bytes())
    content = bytearray((folder / f"001.{form}").read_bytes())
    change(content)
    (at / f"001.{form}").write_bytes(content)
    return at


@pytest.mark.parametrize("form", FORMS)
def test_a_flipped_bit_in_a_whole_volume_is_an_error_that_names_the_file(
    form: VolumeFormat, folder: Path, tmp_path: Path
) -> None:
    value = np.load(folder / "001.npy")[2, 3, 4].tobytes()

    def flip(content: bytearray) -> None:
        content[content.index(value)] ^= 1

    broken = Volumes(damage(folder, tmp_path, form, flip), form)
    with pytest.raises(
        OSError, match=rf"Volume 1 .*001\.{form} is missing or corrupted; .*--check"
    ):
        broken[1]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("left", [0, 100, 600, -1])
def test_a_truncated_file_is_an_error_that_names_it(
    form: VolumeFormat, left: int, folder: Path, tmp_path: Path
) -> None:
    def cut(content: bytearray) -> None:
        del content[left:]

    broken = Volumes(damage(folder, tmp_path, form, cut), form)
    for read in (lambda: broken[1], lambda: broken.plane(1, 3)):
        with pytest.raises(OSError, match=rf"001\.{form} is missing or corrupted; .*--check"):
            read()


@pytest.mark.parametrize("form", FORMS)
def test_no_byte_of_a_file_can_change_the_values_of_a_volume_unnoticed(
    form: VolumeFormat, folder: Path, tmp_path: Path
) -> None:
    truth = torch.from_numpy(np.load(folder / "001.npy"))
    broken = Volumes(damage(folder, tmp_path, form, lambda content: None), form)
    path = tmp_path / f"001.{form}"
    good = path.read_bytes()
    for place in np.linspace(0, len(good) - 1, 150).astype(int):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            right = torch.equal(broken[1], truth)
        except OSError as error:
            right = f"001.{form} is missing or corrupted" in str(error)
        assert right


def test_a_missing_file_is_named(folder: Path, tmp_path: Path) -> None:
    broken = Volumes(damage(folder, tmp_path, "npy", lambda content: None), "npz")
    with pytest.raises(OSError, match=r"000\.npz is missing"):
        broken[0]


def test_a_folder_without_volumes_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make_volumes --out"):
        Volumes(tmp_path)


def test_an_unknown_format_lists_the_known(folder: Path) -> None:
    with pytest.raises(ValueError, match="choose npz, npy or h5"):
        Volumes(folder, "hdf5")  # type: ignore[arg-type]
