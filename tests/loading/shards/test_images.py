"""Images in shards: any file name, and one sentence for a damaged file."""

import errno
from pathlib import Path

import pytest
from PIL import Image

from course_utils.loading.shards import decode_image, image_samples, stream_shards, write_shards
from keepfed.errors import KeepfedError

NAMES = "cat/0.jpg", "cat/2.JPEG", "cat/2023/5/2.jpeg", "cat/Größe 犬.jpg", "dog/0.jpg"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder with images of two classes."""
    for name in NAMES:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.effect_noise((48, 40), 50).convert("RGB").save(path, "JPEG")
    return tmp_path / "images"


def test_image_of_any_name_is_sharded(images: Path, tmp_path: Path) -> None:
    write_shards(image_samples(images), tmp_path / "shards", per_shard=3)
    shards = stream_shards(tmp_path / "shards", decode=decode_image, shuffle_shards=False, buffer=1)
    assert [label for _, label in shards] == [0, 0, 0, 0, 1]


def test_missing_and_damaged_images_are_named(images: Path, tmp_path: Path) -> None:
    (images / "cat/1.jpg").symlink_to(images / "gone.jpg")
    with pytest.raises(FileNotFoundError, match=r"1\.jpg"):
        list(image_samples(images))
    (images / "cat/1.jpg").unlink()
    (images / "cat/1.jpg").write_bytes((images / "cat/0.jpg").read_bytes()[:600])
    write_shards(image_samples(images), tmp_path / "shards", per_shard=9)
    with pytest.raises(OSError, match=r"cat/1 of .*shard-000000\.tar cannot be decoded: .*Replace"):
        list(stream_shards(tmp_path / "shards", decode=decode_image))


def test_full_disk_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(KeepfedError, match=r"disk is full at .*shards.*Free some space, or choose"):
        write_shards([{"__key__": "0", "txt": "x"}], tmp_path / "shards", per_shard=1)
    assert [*tmp_path.iterdir()] == []
