import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from course_utils.hardware.storage import slow_storage
from keepfed.loaders.images import Jpegs
from keepfed.measure.trace import record


def test_images_and_classes_equal_torchvision(images_folder: Path) -> None:
    from torchvision.datasets import ImageFolder

    ours, theirs = Jpegs(images_folder), ImageFolder(images_folder)

    assert len(ours) == len(theirs) == 200
    assert ours.classes == theirs.classes
    assert ours.labels.tolist() == theirs.targets
    assert len(pickle.dumps(ours)) < 100 * len(ours)  # all names are in one array
    for index in (0, 123, 199):
        image, label = ours[index]
        expected, number = theirs[index]
        assert (image.dtype, tuple(image.shape)) == (torch.uint8, (3, 256, 256))
        np.testing.assert_array_equal(image.permute(1, 2, 0), np.asarray(expected))
        assert label == number


def test_image_is_one_request_with_marked_stages(images_folder: Path) -> None:
    fs, local = slow_storage(images_folder, "laptop SSD", cache_mb=0), Jpegs(images_folder)
    remote = Jpegs(images_folder, lambda image: image[:, :224, :224], fs=fs)
    assert remote.names.tolist() == local.names.tolist()
    fs.reset_counters()
    with record() as trace:
        image, _ = remote[7]

    assert torch.equal(image, local[7][0][:, :224, :224])
    assert fs.counters().requests == 1
    assert [span.stage for span in trace.spans] == ["read", "decode", "transform"]


def test_damaged_or_missing_image_is_named_with_a_next_step(
    images_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match="make_images --out"):
        Jpegs(tmp_path)
    (tmp_path / "cat").mkdir()
    path = Path(shutil.copy(images_folder / "cat/00003.jpg", tmp_path / "cat"))
    for content in (path.read_bytes()[:2000], b"no picture"):
        path.write_bytes(content)
        with pytest.raises(OSError, match=r"00003\.jpg is missing or damaged\. .*--check"):
            _ = Jpegs(tmp_path)[0]
