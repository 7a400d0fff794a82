"""Odd files give the right data, or one sentence that names the file and the next step."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.loading.shards import decode_image, image_samples, stream_shards, write_shards
from keepfed.errors import KeepfedError
from keepfed.loaders.images import ImageLoader, Jpegs, PackedImages, pack_images
from keepfed.loaders.records import write_records
from keepfed.loaders.workers import LazyFile


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder with two images in each of two classes."""
    for name in ("cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg"):
        draw(tmp_path / "images" / name)
    return tmp_path / "images"


def draw(path: Path, kind: str = "JPEG") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((48, 40), 50).convert("RGB").save(path, kind)


# --- Images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["cat/2.JPEG", "cat/2.JPG", "cat/2023/5/2.jpeg", "cat/Größe 犬.jpg"]
)
def test_image_of_any_name_is_read_packed_and_sharded(
    name: str, images: Path, tmp_path: Path
) -> None:
    draw(images / name)
    assert [Jpegs(images).name(index) for index in range(5)].count(name) == 1
    assert Jpegs(images).labels.tolist() == [0, 0, 0, 1, 1]
    pack_images(tmp_path / "x.images", images)
    assert len(PackedImages(tmp_path / "x.images")) == 5
    assert len(list(ImageLoader(tmp_path / "x.images", 5, 32, threads=1))) == 1
    write_shards(image_samples(images), tmp_path / "shards", per_shard=3)
    shards = stream_shards(tmp_path / "shards", decode=decode_image, shuffle_shards=False, buffer=1)
    assert [label for _, label in shards] == [0, 0, 0, 1, 1]


def test_other_image_formats_are_read_but_not_packed(images: Path, tmp_path: Path) -> None:
    draw(images / "dog/2.png", "PNG")
    assert Jpegs(images)[4][0].shape == (3, 40, 48)
    with pytest.raises(OSError, match=r"2\.png cannot be packed: .* not a JPEG, .*convert it"):
        pack_images(tmp_path / "x.images", images)
    assert [*tmp_path.iterdir()] == [images]


def test_files_that_are_left_out_are_counted(images: Path) -> None:
    for name in ("cat/notes.txt", "cat/._0.jpg", "cat/.checkpoints/0.jpg", ".cache/0.jpg"):
        draw(images / name)
    with pytest.warns(UserWarning, match=r"ignored 2 files in class folders, .*hidden or not im"):
        assert len(Jpegs(images)) == 4


def no_images(images: Path) -> None:
    (images / "bird").mkdir()


def same_class(images: Path) -> None:
    (images / "puppy").symlink_to(images / "dog")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (no_images, r"class folders without images \(bird\).*numbers of the classes.*Remove them"),
        (same_class, r"puppy and .*dog are the same folder, .*count twice\. Remove the link"),
    ],
)
def test_labels_that_would_change_are_reported(
    change: Callable[[Path], None], says: str, images: Path
) -> None:
    change(images)
    with pytest.raises(OSError, match=says):
        Jpegs(images)


def test_missing_and_damaged_images_are_named(images: Path, tmp_path: Path) -> None:
    (images / "cat/2.jpg").symlink_to(images / "gone.jpg")
    for read in (
        lambda: pack_images(tmp_path / "x.images", images),
        lambda: list(image_samples(images)),
    ):
        with pytest.raises(OSError, match=r"2\.jpg cannot be read: it is a link to a missing file"):
            read()
    (images / "cat/2.jpg").unlink()
    (images / "cat/1.jpg").write_bytes((images / "cat/1.jpg").read_bytes()[:600])
    write_shards(image_samples(images), tmp_path / "shards", per_shard=9)
    with pytest.raises(OSError, match=r"cat/1 of .*shard-000000\.tar cannot be decoded: .*Replace"):
        list(stream_shards(tmp_path / "shards", decode=decode_image))


# --- Full disks -----------------------------------------------------------------------------------


def test_full_disk_is_one_sentence_and_leaves_nothing(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr("os.fsync", full)
    monkeypatch.setattr("numpy.lib.format.write_array", full)
    monkeypatch.setattr("numpy.lib.format.write_array_header_1_0", full)
    for write in (
        lambda: write_shards([{"__key__": "0", "txt": "x"}], out / "shards", per_shard=1),
        lambda: write_records(out / "r.npy", {"x": np.ones(3)}),
        lambda: pack_images(out / "x.images", images),
    ):
        with pytest.raises(
            KeepfedError, match=r"disk is full at .*out/.*Free some space, or choose"
        ):
            write()
        assert [*out.iterdir()] == []


# --- Records and lazy files -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({0: np.arange(4)}, "name of a field is 0"),
        ({"": np.arange(4)}, "name of a field is ''"),
        ({"x": torch.ones(4, requires_grad=True)}, "'x' cannot be read: .*detach"),
        ({"x": torch.ones(4, dtype=torch.bfloat16)}, r"'x' cannot be read: .*`\.float\(\)`"),
        ({"x": np.array([1, np.nan])}, "'x' is NaN in row 1, .*allow_nan=True"),
        ({"x": np.array([[1], [2, 3]], object)}, "'x' has type object .*array of numbers"),
    ],
)
def test_fields_that_cannot_be_stored_are_named(
    fields: dict[Any, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=says):
        write_records(tmp_path / "r.npy", fields)
    assert [*tmp_path.iterdir()] == []


def test_nan_may_be_allowed(tmp_path: Path) -> None:
    write_records(tmp_path / "r.npy", {"x": np.array([1, np.nan])}, allow_nan=True)
    assert np.isnan(np.load(tmp_path / "r.npy")["x"]).tolist() == [False, True]


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(1000))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:500])
    lazy = LazyFile(np.load, tmp_path / "x.npy", mmap_mode="r")
    with pytest.raises(OSError, match=r"load cannot open .*x\.npy: .*`keepfed why` explains"):
        _ = lazy.file
