import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keepfed.loaders.images import Jpegs, PackedImages, pack_images


def test_every_image_keeps_its_pixels_and_label(photos: Path, packed: Path) -> None:
    images, files = PackedImages(packed), Jpegs(photos)
    assert len(images) == len(files)
    assert images.table["label"].tolist() == files.labels.tolist()
    for index, name in enumerate(files.names):
        with (
            Image.open(photos / name.decode()) as image,
            Image.open(io.BytesIO(images[index].tobytes())) as ours,
        ):
            assert image.size == (images.table["width"][index], images.table["height"][index])
            assert np.array_equal(image, ours)


@pytest.mark.parametrize("place", ["label", "image"])
def test_one_flipped_bit_is_found_when_the_image_is_read(
    packed: Path, tmp_path: Path, place: str
) -> None:
    content, images = bytearray(packed.read_bytes()), PackedImages(packed)
    label = content.index(images.table[:1].tobytes()) + images.table.dtype.fields["label"][1]
    content[label if place == "label" else images.table["where"][0] + 100] ^= 1
    (tmp_path / "changed").write_bytes(content)
    changed = PackedImages(tmp_path / "changed")
    assert changed[1].tobytes() == images[1].tobytes()
    with pytest.raises(OSError, match=r"Image 0 of .* is corrupted\. Copy the file again"):
        changed[0]


def test_missing_truncated_or_foreign_file_is_rejected(packed: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="Create it with `pack_images`"):
        PackedImages(tmp_path / "none")
    np.save(tmp_path / "other.npy", np.arange(3))
    for name, content in {
        "cut": packed.read_bytes()[:-1],
        "half a table": packed.read_bytes()[:200],
        "other": (tmp_path / "other.npy").read_bytes(),
        "text": b"no table",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OSError, match="is not a complete file of packed images"):
            PackedImages(tmp_path / name)


def test_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "0.jpg")
    whole = (folder / "0.jpg").read_bytes()
    Image.fromarray(pixels).convert("CMYK").save(folder / "print.jpg")
    with pytest.raises(OSError, match=r"print.jpg cannot be packed: its colors are CMYK"):
        pack_images(tmp_path / "train.images", tmp_path / "photos")
    (folder / "print.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(OSError, match=r"print.jpg cannot be packed"):
        pack_images(tmp_path / "train.images", tmp_path / "photos")
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
