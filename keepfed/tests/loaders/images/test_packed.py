import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keepfed.loaders.images import Jpegs, PackedImages


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
def test_one_flipped_bit_of_an_image_is_found(packed: Path, tmp_path: Path, place: str) -> None:
    content, images = bytearray(packed.read_bytes()), PackedImages(packed)
    label = content.index(images.table[:1].tobytes()) + images.table.dtype.fields["label"][1]
    content[label if place == "label" else images.table["where"][0] + 100] ^= 1
    (tmp_path / "changed").write_bytes(content)
    changed = PackedImages(tmp_path / "changed")
    assert changed[1].tobytes() == images[1].tobytes()
    with pytest.raises(OSError, match=r"changed, sample 0: its checksum is wrong\. Copy it again"):
        changed[0]
