"""Small numbered shards, with which the examples of the field guide run."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from course_utils.loading.shards import url_of, write_shards


def numbered_shards(folder: str | Path, count: int = 48, per_shard: int = 8) -> list[str]:
    """Write JPEGs of several sizes into shards, with indices as classes, and return their URLs.

    Raises:
        FileExistsError: If the folder already contains shards.
    """
    return [url_of(path) for path in write_shards(_numbered(count), folder, per_shard=per_shard)]


def _numbered(count: int) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    for number in range(count):
        pixels = rng.integers(256, size=(40, 40 + 8 * (number % 3), 3), dtype=np.uint8)
        with BytesIO() as file:
            Image.fromarray(pixels).save(file, "JPEG")
            yield {"__key__": f"{number:06d}", "jpg": file.getvalue(), "cls": number}
