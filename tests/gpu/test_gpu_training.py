"""The training loop runs on an emulated device, where the CPU trains."""

import gpu_training
import numpy as np
import pytest
import torch
from gpu_training import WAYS
from PIL import Image

from course_utils.hardware.gpu import get_accelerator
from keepfed.errors import KeepfedError


@pytest.fixture
def gpu():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield get_accelerator("H200", emulate=True)
    torch.set_num_threads(before)


@pytest.fixture
def images(tmp_path):
    noise = np.random.default_rng(0)
    for name in ("cat", "rocket"):
        (tmp_path / name).mkdir()
        for number in range(4):
            pixels = noise.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.jpg")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", [*(pytest.param(way, marks=pytest.mark.full) for way in WAYS[:-1]), WAYS[-1]]
)
@pytest.mark.filterwarnings("ignore:The batches are in pageable memory")
def test_every_way_is_measured_on_both_devices(way, images, gpu):
    tiny = {"batch_size": 4, "workers": 1, "size": 32, "width": 4}
    result = gpu_training.train(images, gpu, way, steps=3, **tiny)
    assert (result["workers"], result["steps"]) == (way != "naive", 3)
    assert np.isfinite(result["losses"]).all()
    assert 0 <= result["idle"] <= 1
    assert result["images_per_s"] > 0


def test_too_few_images_raise_clear_error(images, gpu):
    with pytest.raises(KeepfedError, match="has 8 images, but a batch needs 256"):
        gpu_training.train(images, gpu, "naive")
