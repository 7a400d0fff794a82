from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data

from keepfed.loaders.images import pack_images


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return class folders with 40 images of many sizes and types. Do not write to it."""
    folder, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    kinds: Any = [{}, {"subsampling": "4:4:4"}, {"progressive": True}, {"optimize": True}]
    for name, photograph in {"cat": data.chelsea(), "coffee": data.coffee()}.items():
        (folder / name).mkdir()
        for number in range(20):
            height, width = rng.integers(30, (300, 320))
            image = Image.fromarray(photograph[:height, -width:])
            if number == 7:
                image = image.convert("L")
            image.save(folder / name / f"{number:02d}.jpg", quality=90, **kinds[number % 4])
    return folder


@pytest.fixture(scope="session")
def packed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same images in one packed file. Do not write to it."""
    path = tmp_path_factory.mktemp("packed") / "train.images"
    assert pack_images(path, photos) == path.stat().st_size
    return path
