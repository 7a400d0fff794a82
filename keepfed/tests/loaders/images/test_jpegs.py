"""Images in class folders: torchvision's order, and one sentence for odd ones."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.local import LocalFileSystem
from PIL import Image

from keepfed.loaders.images import ImageLoader, Jpegs, PackedImages, pack_images
from keepfed.measure.trace import record


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in ("cat/0.jpg", "cat/1.jpg", "dog/0.jpg", "dog/1.jpg"):
        draw(tmp_path / "images" / name)
    return tmp_path / "images"


def draw(path: Path, kind: str = "JPEG") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.effect_noise((48, 40), 50).convert("RGB").save(path, kind)


def test_images_and_classes_equal_torchvision(photos: Path) -> None:
    from torchvision.datasets import ImageFolder

    ours, theirs = Jpegs(photos), ImageFolder(photos)
    assert ours.classes == theirs.classes
    assert ours.labels.tolist() == theirs.targets
    assert len(pickle.dumps(ours)) < 2000  # all names are in one array
    for index in range(len(ours)):
        image, label = ours[index]
        np.testing.assert_array_equal(image.permute(1, 2, 0), np.asarray(theirs[index][0]))
        assert label == theirs[index][1]


def test_image_is_opened_once_with_marked_stages(photos: Path) -> None:
    opened = list[str]()

    class Counted(LocalFileSystem):
        cachable = False

        def open(self, path: str, *args: Any, **kwargs: Any) -> Any:
            opened.append(path)
            return super().open(path, *args, **kwargs)

    local, remote = Jpegs(photos), Jpegs(photos, lambda image: image[:, :20, :20], fs=Counted())
    assert remote.names.tolist() == local.names.tolist()
    with record() as trace:
        image, _ = remote[7]
    assert image.equal(local[7][0][:, :20, :20])
    assert len(opened) == 1
    assert [span.stage for span in trace.spans] == ["read", "decode", "transform"]


def test_image_of_any_name_is_read_and_packed(images: Path, tmp_path: Path) -> None:
    names = "cat/2.JPEG", "cat/3.JPG", "cat/2023/5/2.jpeg", "cat/Größe 犬.jpg"
    for name in names:
        draw(images / name)
    draw(images / "dog/2.png", "PNG")  # which `pack_images` refuses
    assert Jpegs(images)[8][0].shape == (3, 40, 48)
    (images / "dog/2.png").unlink()
    found = Jpegs(images)
    assert {found.name(index) for index in range(8)} >= {*names}
    assert found.labels.tolist() == [0] * 6 + [1] * 2
    pack_images(tmp_path / "x.images", images)
    assert len(PackedImages(tmp_path / "x.images")) == 8
    assert len(list(ImageLoader(tmp_path / "x.images", 8, 32, threads=1))) == 1


def test_files_that_are_left_out_are_counted(images: Path) -> None:
    for name in ("cat/notes.txt", "cat/._0.jpg", "cat/.checkpoints/0.jpg", ".cache/0.jpg"):
        draw(images / name)
    with pytest.warns(UserWarning, match=r"ignored 2 files in class folders, .*hidden or not im"):
        assert len(Jpegs(images)) == 4


def test_labels_that_would_change_are_reported(images: Path) -> None:
    (images / "bird").mkdir()
    with pytest.raises(OSError, match=r"without images \(bird\).*of the classes.*Remove them"):
        Jpegs(images)
