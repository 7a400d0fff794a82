"""Train a small network on real JPEGs, loaded in four ways, and measure how long the GPU waits.

This is a part of run.py. On an emulated device the CPU trains, and the figures mean nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from course_utils.hardware.gpu import Accelerator
from keepfed.errors import KeepfedError
from keepfed.loaders.prefetch import CudaPrefetcher
from keepfed.measure.trace import record

WAYS = ("naive", "workers", "pinned", "prefetcher")
Step = Callable[[Any], torch.Tensor]


class Crop:
    """Crop a random square and flip every second image; uint8 stays uint8."""

    def __init__(self, size: int):
        self.size = size

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        top, left = (int(torch.randint(length - self.size + 1, ())) for length in image.shape[1:])
        cut = image[:, top : top + self.size, left : left + self.size]
        return (cut.flip(2) if torch.rand(()) < 0.5 else cut).contiguous()


def network(classes: int, width: int) -> nn.Module:
    """Return ten convolutions; every second one halves the sides of the image."""
    layers: list[nn.Module] = []
    for channels, wider in pairwise([3, *(width * 2**stage for stage in (0, 0, 1, 2, 3))]):
        for inside, stride in ((channels, 2), (wider, 1)):
            convolution = nn.Conv2d(inside, wider, 3, stride=stride, padding=1, bias=False)
            layers += convolution, nn.BatchNorm2d(wider), nn.ReLU()
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes)
    return nn.Sequential(*layers, *head)


def trainer(device: torch.device, classes: int, width: int = 64) -> Step:
    """Return a function for a training step on a batch of uint8 images and int64 labels."""
    torch.manual_seed(0)
    model = network(classes, width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(batch: Any) -> torch.Tensor:
        images, labels = batch
        loss = nn.functional.cross_entropy(model(images.float() / 255), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def course_images() -> Path:
    """Return the folder of the course's images, and create them if they are missing."""
    from course_utils.paths import data_root
    from data_scripts import make_images

    if make_images.main(["--size", "M"]) != 0:
        raise KeepfedError("The images could not be created. Use other images with --images DIR.")
    return data_root() / "images-M"


def train(
    folder: Path,
    gpu: Accelerator,
    way: str,
    *,
    steps: int = 24,
    batch_size: int = 256,
    workers: int = min(8, os.cpu_count() or 1),
    size: int = 192,
    width: int = 64,
) -> dict[str, Any]:
    """Train for some steps, and return the results: losses, idle share and images per second.

    Args:
        folder: contains one folder per class with .jpg files of at least `size` pixels per side.
        gpu: device that trains and is measured.
        way: way of loading, one of `WAYS`.
        steps: number of measured steps, after a few for warming up.
        batch_size: images per batch. With small batches, a fast GPU waits for Python to launch
            kernels, and the spans count this time as work.
        workers: number of workers, except for the naive way.
        size: side of the cropped images in pixels.
        width: channels of the first layers of the network.
    """
    from keepfed.loaders.images import Jpegs

    data = Jpegs(folder, Crop(size))
    if len(data) < batch_size:
        raise KeepfedError(
            f"{folder} has {len(data)} images, but a batch needs {batch_size}. Use a folder with "
            "more images: --images DIR."
        )
    device = torch.device("cpu" if gpu.emulated else "cuda")
    loader: DataLoader[Any] = DataLoader(
        data,
        batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=0 if way == "naive" else workers,
        pin_memory=not gpu.emulated and way in ("pinned", "prefetcher"),
        persistent_workers=way != "naive" and workers > 0,
    )
    step = trainer(device, len(data.classes), width)
    # warm up: cuDNN selects algorithms, the allocator reserves memory, and the workers start
    _loop(way, islice(_epochs(loader), 5), gpu, step)
    with record(label=way) as trace:
        losses = _loop(way, trace.batches(islice(_epochs(loader), steps)), gpu, step)
    summary = trace.summary()
    return {
        "workers": loader.num_workers,
        "steps": len(losses),
        "losses": (losses[0], losses[-1]),
        "idle": 1 - summary.au,  # after the first step
        "images_per_s": summary.samples_per_s,
    }


def _loop(way: str, batches: Iterable[Any], gpu: Accelerator, step: Step) -> list[float]:
    if way == "prefetcher":
        fed: Iterable[Any] = CudaPrefetcher(batches, gpu)
    else:
        fed = (gpu.upload(batch, non_blocking=way == "pinned") for batch in batches)
    losses = [gpu.launch(step, batch, ms=1) for batch in fed]
    gpu.synchronize()
    return [float(loss.cpu()) for loss in losses]


def _epochs(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader
