"""The training loop is sound: it runs on a CPU, where it measures nothing and says so."""

import json

import gpu_training
import numpy as np
import pytest
import run
import torch
from PIL import Image

from course_utils.hardware.gpu import get_accelerator


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
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


def test_a_crop_has_the_asked_size_and_stays_uint8():
    crop = gpu_training.Crop(32)(torch.zeros(3, 40, 48, dtype=torch.uint8))
    assert (crop.shape, crop.dtype) == ((3, 32, 32), torch.uint8)
    assert crop.is_contiguous()


@pytest.mark.slow
def test_the_model_learns_a_batch_by_heart():
    step = gpu_training.trainer(torch.device("cpu"), classes=2, width=8)
    random = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8, generator=random)
    losses = [float(step((images, torch.tensor([0, 1, 0, 1])))) for _ in range(10)]
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.slow
def test_every_way_trains_on_a_cpu_and_says_that_nothing_was_measured(images):
    tiny = {"batch_size": 4, "workers": 1, "size": 32, "width": 4}
    found = list(gpu_training.train(images, None, steps=3, **tiny))
    assert tuple(fed.way for fed in found) == gpu_training.WAYS
    assert [fed.workers for fed in found] == [0, 1, 1, 1]
    assert all(fed.steps == 3 and np.isfinite(fed.losses).all() for fed in found)
    assert all("nothing was measured" in str(fed) for fed in found)
    facts = run.machine_facts(get_accelerator("H200", emulate=True))
    written = json.loads(json.dumps(gpu_training.report(found, facts, images)))
    assert {"gpu", "driver", "torch", "date", "command"} <= set(written)
    assert [way["idle"] for way in written["ways"]] == [None] * 4


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The batches are in pageable memory")
def test_every_way_is_measured_by_the_interface_of_both_devices(images):
    gpu = get_accelerator("H200", emulate=True)
    tiny = {"batch_size": 4, "workers": 0, "size": 32, "width": 4}
    found = list(gpu_training.train(images, gpu, steps=3, **tiny))
    assert [fed.steps for fed in found] == [3] * 4
    assert all(0 <= fed.idle <= 1 and fed.images_per_s > 0 for fed in found)
    assert all("images/s" in str(fed) for fed in found)


def test_too_few_images_are_named(images):
    with pytest.raises(ValueError, match=r"holds 8 images, and a batch takes 64: name a folder"):
        next(gpu_training.train(images, None))


def test_where_there_are_no_images_to_train_on_the_script_says_so(images, capsys):
    gpu = get_accelerator("H200", emulate=True)
    run.save_training(gpu, images, run.machine_facts(gpu), images)
    assert "not measured: " in capsys.readouterr().out
    assert not list(images.glob("*.json"))
