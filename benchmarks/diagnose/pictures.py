"""Images, in typical user code."""

from __future__ import annotations

import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.diagnose.loops import Loop, known, step_of
from course_utils.teaching.notebook import data_path


@known("WebLoader, one worker that decodes arrays", "CPU")
def _web_loader(folder: Path) -> Loop:
    import webdataset

    rng = np.random.default_rng(0)
    for shard in range(4):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for number in range(200):
                file = BytesIO()
                np.save(file, rng.integers(0, 255, (192, 192), np.uint8))
                for ending, content in (("npy", file.getvalue()), ("cls", b"1")):
                    entry = tarfile.TarInfo(f"{shard}{number:04}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, BytesIO(content))
    shards = [str(folder / f"{shard}.tar") for shard in range(4)]
    dataset = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False)
    samples = dataset.to_tuple("npy", "cls").map(_decoded).batched(32)
    return webdataset.WebLoader(samples, batch_size=None, num_workers=1), step_of(5)


def _decoded(sample: tuple[bytes, bytes]) -> tuple[torch.Tensor, int]:
    array = np.log1p(np.load(BytesIO(sample[0])).astype(np.float32))
    smaller = (array / array.std()).reshape(48, 4, 48, 4).mean(axis=(1, 3))
    return torch.from_numpy(smaller), int(sample[1])


@known("torchvision ImageFolder, no workers", "CPU")
def _image_folder(folder: Path) -> Loop:
    return DataLoader(_images(96), batch_size=16, shuffle=True), step_of(20)


@known("torchvision ImageFolder", "CPU")
def _image_folder_worker(folder: Path) -> Loop:
    loader = DataLoader(_images(128), batch_size=32, shuffle=True, num_workers=1, pin_memory=False)
    return loader, step_of(15)


def _images(side: int) -> Dataset[Any]:
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    usual = [transforms.RandomResizedCrop(side), transforms.RandomHorizontalFlip()]
    steps = transforms.Compose([*usual, transforms.ToTensor()])
    return ImageFolder(str(data_path("images")), steps)  # type: ignore[no-any-return]


class Landmarks(Dataset[Any]):
    """Images read and resized by scikit-image, as in PyTorch's tutorial on loading data."""

    def __init__(self) -> None:
        self.files = sorted(Path(data_path("images")).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        from skimage import io, transform

        image = io.imread(self.files[int(index)])
        image = transform.resize(image, (96, 96))  # type: ignore[no-untyped-call]
        return {
            "image": torch.from_numpy(image.transpose(2, 0, 1)).float(),
            "points": torch.ones(2),
        }


@known("pictures resized by scikit-image", "CPU")
def _landmarks(folder: Path) -> Loop:
    gpu = step_of(10)
    loader = DataLoader(Landmarks(), batch_size=4, num_workers=1)
    return loader, lambda batch: gpu(batch["image"])
