import io
from typing import Any

import numpy as np
from PIL import Image
from simplejpeg import decode_jpeg
from skimage import data

from keepfed.loaders.images.restarts import with_restarts

KINDS: list[dict[str, Any]] = [
    {},
    {"mode": "L"},
    {"subsampling": "4:4:4", "quality": 98},
    {"subsampling": "4:2:2", "quality": 20},
    {"optimize": True},
]


def jpeg(height: int, width: int, mode: str = "RGB", **options: Any) -> bytes:
    file, image = io.BytesIO(), Image.fromarray(data.astronaut()[:height, :width])
    image.convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def test_pixels_do_not_change_and_intervals_follow_markers() -> None:
    sizes = [(1, 1), (17, 150), (90, 33), (128, 128)]
    jpegs = [jpeg(*size, **options) for options in KINDS for size in sizes]
    for before, after in zip(jpegs, with_restarts(jpegs), strict=True):
        assert after
        assert np.array_equal(decode_jpeg(after.jpeg), decode_jpeg(before))
        height, width = decode_jpeg(before).shape[:2]
        assert after.across == -(-width // after.width)
        assert len(after.starts) == after.across * -(-height // after.height) + 1
        markers = [after.jpeg[end - 2 : end] for end in after.starts[1:].tolist()]
        expected = [bytes([0xFF, 0xD0 + number % 8]) for number in range(len(markers) - 1)]
        assert markers == [*expected, b"\xff\xd9"]


def test_unsupported_jpeg_is_not_changed() -> None:
    with_restarts_of_its_own = jpeg(64, 64, restart_marker_rows=1)
    kinds = [jpeg(64, 64, progressive=True), with_restarts_of_its_own, jpeg(64, 64)]
    assert [made is None for made in with_restarts(kinds)] == [True, True, False]
    assert with_restarts([]) == []
