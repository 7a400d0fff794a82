"""Loops whose ailment is known, because it was built in: does `diagnose` find it?

Each function returns a loader and a step. They live in a module, so that workers of every start
method can import them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator
from course_utils.hardware.storage import UNLIMITED, slow_storage
from course_utils.loading.images import Jpegs
from course_utils.measure.diagnosis import Cause
from course_utils.teaching.explorer import use_cpu
from course_utils.teaching.notebook import data_path

Loop = tuple[Any, Callable[[Any], Any]]
CAUSES: dict[str, Cause] = {}
LOOPS: dict[str, Callable[[Path], Loop]] = {}
MENDED: dict[str, Callable[[Path], Loop]] = {}  # loops in which somebody did what is advised


def known(name: str, cause: Cause) -> Callable[[Callable[[Path], Loop]], Callable[[Path], Loop]]:
    """Register a loop, which gets a folder for its files, under its cause."""

    def register(make: Callable[[Path], Loop]) -> Callable[[Path], Loop]:
        CAUSES[name], LOOPS[name] = cause, make
        return make

    return register


def mended(name: str) -> Callable[[Callable[[Path], Loop]], Callable[[Path], Loop]]:
    """Register the loop of that name after the change of code that it is advised."""

    def register(make: Callable[[Path], Loop]) -> Callable[[Path], Loop]:
        MENDED[name] = make
        return make

    return register


@contextmanager
def loop(name: str, *, after: bool = False) -> Iterator[Loop]:
    """Make the loop of that name, `after` the advice if so, and clear its files away later."""
    with TemporaryDirectory() as folder:
        yield (MENDED if after else LOOPS)[name](Path(folder))


@dataclass(frozen=True)
class Step:
    """Upload and train on an accelerator that computes for `ms`."""

    gpu: EmulatedAccelerator
    python_ms: float = 0.0

    def __call__(self, batch: Any) -> Any:
        """Train on one batch and read the loss."""
        loss = self.gpu.step(self.gpu.upload(batch))
        loss.item()
        if self.python_ms:
            use_cpu(self.python_ms)
        return None


def step_of(ms: float, *, python_ms: float = 0.0, pageable_gb_s: float = 12.9) -> Step:
    """Return a step of `ms` on an emulated RTX 3090."""
    preset = replace(PRESETS["RTX 3090"], pageable_gb_s=pageable_gb_s)
    return Step(EmulatedAccelerator(preset, step_ms=ms), python_ms)


# datasets, written as a practitioner would: none of them marks its stages


class InMemory(Dataset[torch.Tensor]):
    """Rows of a tensor."""

    def __init__(self, rows: int = 20_000, width: int = 16):
        """Make `rows` of them."""
        self.rows = torch.arange(rows * width, dtype=torch.float32).reshape(rows, width)

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return one row."""
        return self.rows[index]


class PythonTransform(InMemory):
    """A transform in pure Python."""

    def __init__(self, ms: float, rows: int = 20_000):
        """Compute for `ms` on each sample."""
        super().__init__(rows)
        self.ms = ms

    def __getitem__(self, index: int) -> torch.Tensor:
        """Compute, then return one row."""
        use_cpu(self.ms)
        return self.rows[int(index)]


class FromStorage(Dataset[torch.Tensor]):
    """One file per sample, on storage that takes its time."""

    def __init__(self, folder: Path, ms: float, files: int = 4000, at_once: int = 32):
        """Write the files of a storage that answers each request after `ms`."""
        (folder / "sample").write_bytes(bytes(4096))
        self.files = files
        limits = replace(UNLIMITED, request_ms=ms, requests_at_once=at_once)
        self.storage = slow_storage(folder, limits)

    def __len__(self) -> int:
        """Count the samples."""
        return self.files

    def __getitem__(self, index: int) -> torch.Tensor:
        """Read one sample."""
        with self.storage.open("sample") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


class Multiplying(Dataset[torch.Tensor]):
    """Six matrix products for a sample, in numpy."""

    def __init__(self, samples: int = 4000):
        """Make the matrix."""
        self.matrix = np.random.default_rng(0).random((256, 256), np.float32)
        self.samples = samples

    def __len__(self) -> int:
        """Count the samples."""
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        """Multiply, and return a row."""
        product = self.matrix
        for _ in range(6):
            product = product @ self.matrix / 256
        return torch.from_numpy(product[0].copy())


class Trees(Dataset[dict[str, Any]]):
    """Samples of many small dicts."""

    def __len__(self) -> int:
        """Count the samples."""
        return 4000

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return the hits of one event, one dict each."""
        return {"hits": [{"x": i, "t": 0.5 * i, "name": f"s{i}"} for i in range(500)]}


class Large(Dataset[torch.Tensor]):
    """Samples of megabytes, quickly made."""

    def __init__(self, dtype: torch.dtype = torch.float32):
        """Make them of numbers of this size."""
        self.dtype = dtype

    def __len__(self) -> int:
        """Count the samples."""
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return 8 MB, or 2 MB of bytes."""
        return torch.empty(2_000_000, dtype=self.dtype)


class Paths(Dataset[int]):
    """A list of a million strings, each looked at once."""

    def __init__(self) -> None:
        """Make the list."""
        self.paths = [f"/data/train/{i % 1000:04d}/image_{i:08d}.jpg" for i in range(2_000_000)]

    def __len__(self) -> int:
        """Count the samples."""
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        """Return the length of a path."""
        return len(self.paths[index])


class OneIsSlow(InMemory):
    """A sample in a few hundred is huge."""

    def __getitem__(self, index: int) -> torch.Tensor:
        """Compute for long, once in a while."""
        use_cpu(400 if index % 320 == 7 else 0.2)
        return self.rows[int(index)]


class NoneIsSlow(OneIsSlow):
    """The huge ones were made smaller ahead of training."""

    def __getitem__(self, index: int) -> torch.Tensor:
        """Compute for a moment."""
        use_cpu(0.2)
        return self.rows[int(index)]


# collate functions and the like


def as_they_are(samples: list[Any]) -> list[Any]:
    """Leave the samples a list."""
    return samples


def collate_in_python(samples: list[torch.Tensor]) -> torch.Tensor:
    """Copy number by number."""
    use_cpu(40)
    return torch.stack(samples)


def on_one_core(worker_id: int) -> None:
    """Pin every worker to the same core, as some job scripts do."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


@known("GPU-bound: data in memory", "GPU-bound")
def _in_memory(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64, num_workers=2), step_of(30)


@known("GPU-bound: slow loader, slower step", "GPU-bound")
def _hidden_storage(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 5), batch_size=16, num_workers=2), step_of(80)


@known("GPU-bound: heavy transform, hidden", "GPU-bound")
def _hidden_cpu(folder: Path) -> Loop:
    return DataLoader(PythonTransform(2), batch_size=16, num_workers=2), step_of(100)


@known("storage, no workers", "storage")
def _storage(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 5), batch_size=16), step_of(20)


@known("storage, two workers", "storage")
def _storage_workers(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 10), batch_size=16, num_workers=2), step_of(20)


@mended("storage, two workers")
def _local(folder: Path) -> Loop:
    return DataLoader(FromStorage(folder, 0), batch_size=16, num_workers=2), step_of(20)


@known("CPU: decoding JPEGs", "CPU")
def _jpegs(folder: Path) -> Loop:
    images = Jpegs(data_path("images"), transform=_crop)
    return DataLoader(images, batch_size=32, num_workers=2, shuffle=True), step_of(4)


@mended("CPU: decoding JPEGs")
def _decoded(folder: Path) -> Loop:
    images = InMemory(1_000, 3 * 96 * 96)
    return DataLoader(images, batch_size=32, num_workers=2, shuffle=True), step_of(4)


def _crop(image: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.interpolate(image[None].float(), (96, 96))[0]


@known("CPU: transform in Python", "CPU")
def _python(folder: Path) -> Loop:
    return DataLoader(PythonTransform(3), batch_size=16, num_workers=1), step_of(15)


@known("CPU: thread pools", "CPU")
def _pools(folder: Path) -> Loop:
    return DataLoader(Multiplying(), batch_size=8, num_workers=2), step_of(5)


@known("CPU: workers on one core", "CPU")
def _pinned(folder: Path) -> Loop:
    loader = DataLoader(
        PythonTransform(2), batch_size=16, num_workers=2, worker_init_fn=on_one_core
    )
    return loader, step_of(10)


@mended("CPU: workers on one core")
def _unpinned(folder: Path) -> Loop:
    return DataLoader(PythonTransform(2), batch_size=16, num_workers=2), step_of(10)


@known("IPC: trees of dicts", "collate or IPC")
def _trees(folder: Path) -> Loop:
    loader = DataLoader(Trees(), batch_size=32, num_workers=2, collate_fn=as_they_are)
    gpu = step_of(2)
    return loader, lambda batch: gpu(torch.zeros(8))


@mended("IPC: trees of dicts")
def _flat(folder: Path) -> Loop:
    loader = DataLoader(InMemory(4000, 1000), batch_size=32, num_workers=2)
    gpu = step_of(2)
    return loader, lambda batch: gpu(torch.zeros(8))


@known("IPC: large tensors", "collate or IPC")
def _large(folder: Path) -> Loop:
    loader = DataLoader(Large(), batch_size=8, num_workers=2)
    gpu = step_of(2)
    return loader, lambda batch: gpu(batch[:, :8].clone())


@mended("IPC: large tensors")
def _small(folder: Path) -> Loop:
    loader = DataLoader(Large(torch.uint8), batch_size=8, num_workers=2)
    gpu = step_of(2)
    return loader, lambda batch: gpu(batch[:, :8].clone())


@known("collate in Python", "collate or IPC")
def _collate(folder: Path) -> Loop:
    loader = DataLoader(InMemory(), batch_size=64, collate_fn=collate_in_python)
    return loader, step_of(10)


@mended("collate in Python")
def _stacked(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64), step_of(10)


@known("transfer from pageable memory", "transfer")
def _transfer(folder: Path) -> Loop:
    loader = DataLoader(InMemory(8_000, 4096), batch_size=64, num_workers=2)
    return loader, step_of(10, pageable_gb_s=0.15)


@mended("transfer from pageable memory")
def _pinned_memory(folder: Path) -> Loop:
    return DataLoader(InMemory(8_000, 4096), batch_size=64, num_workers=2), step_of(10)


@known("Python in the step", "main process")
def _python_step(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64, num_workers=2), step_of(10, python_ms=25)


@mended("Python in the step")
def _lean_step(folder: Path) -> Loop:
    return DataLoader(InMemory(), batch_size=64, num_workers=2), step_of(10)


@known("start-up of spawned workers", "start-up")
def _start_up(folder: Path) -> Loop:
    loader = DataLoader(
        InMemory(1_280), batch_size=64, num_workers=2, multiprocessing_context="spawn"
    )
    return loader, step_of(10)


@known("memory: a list of paths", "memory")
def _memory(folder: Path) -> Loop:
    loader = DataLoader(
        Paths(), batch_size=512, num_workers=2, shuffle=True, multiprocessing_context="fork"
    )
    return loader, step_of(20)


@known("uneven: a slow sample", "uneven")
def _uneven(folder: Path) -> Loop:
    loader = DataLoader(OneIsSlow(), batch_size=32, num_workers=2)
    return loader, step_of(10)


@mended("uneven: a slow sample")
def _even(folder: Path) -> Loop:
    return DataLoader(NoneIsSlow(), batch_size=32, num_workers=2), step_of(10)


@known("torchvision ImageFolder", "CPU")
def _image_folder(folder: Path) -> Loop:
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    usual = transforms.Compose(
        [
            transforms.RandomResizedCrop(128),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    images = ImageFolder(str(data_path("images")), usual)
    loader = DataLoader(images, batch_size=32, shuffle=True, num_workers=1, pin_memory=False)
    return loader, step_of(15)
