"""Registry of the loops to diagnose, and datasets that several of them use.

Each registered function returns a loader and a step. They are in modules, so that workers of every
start method can import them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch.utils.data import Dataset

from course_utils.hardware.gpu import PRESETS, EmulatedAccelerator
from course_utils.hardware.storage import UNLIMITED, slow_storage
from course_utils.teaching.explorer import use_cpu
from keepfed.measure.advice import Cause

Loop = tuple[Any, Callable[[Any], Any]]
Make = Callable[[Path], Loop]
CAUSES: dict[str, Cause] = {}
LOOPS: dict[str, Make] = {}
FIXED = defaultdict[str, dict[str, Make]](
    dict
)  # loop name -> {ID of the advice: loop after the change}
ROWS = 20_000  # samples of most datasets


def known(name: str, cause: Cause) -> Callable[[Make], Make]:
    """Register a loop under its cause. The function receives a folder for its files."""

    def register(make: Make) -> Make:
        CAUSES[name], LOOPS[name] = cause, make
        return make

    return register


def fixed(name: str, advice: str = "") -> Callable[[Make], Make]:
    """Register the loop `name` after the code change `advice` ("": after any change)."""

    def register(make: Make) -> Make:
        FIXED[name][advice] = make
        return make

    return register


@contextmanager
def loop(make: Make) -> Iterator[Loop]:
    """Build a loop, and delete its files afterwards."""
    with TemporaryDirectory() as folder:
        yield make(Path(folder))


@dataclass(frozen=True)
class Step:
    """Upload a batch, and train on an accelerator that computes for `ms`."""

    gpu: EmulatedAccelerator
    python_ms: float = 0.0

    def __call__(self, batch: Any) -> Any:
        """Train on one batch, and read the loss."""
        loss = self.gpu.step(self.gpu.upload(batch))
        loss.item()
        if self.python_ms:
            use_cpu(self.python_ms)
        return None


def step_of(ms: float, *, python_ms: float = 0.0, pageable_gb_s: float = 12.9) -> Step:
    """Return a step of `ms` on an emulated RTX 3090."""
    preset = replace(PRESETS["RTX 3090"], pageable_gb_s=pageable_gb_s)
    return Step(EmulatedAccelerator(preset, step_ms=ms), python_ms)


@dataclass(frozen=True)
class Sleep:
    """A step that only sleeps, because emulating a device takes longer than a short step."""

    ms: float

    def __call__(self, batch: Any) -> None:
        """Sleep for `ms`."""
        time.sleep(self.ms / 1e3)


class Counted(Dataset[Any]):
    """A dataset with a fixed number of samples."""

    count = ROWS

    def __len__(self) -> int:
        return self.count


class InMemory(Dataset[torch.Tensor]):
    """Dataset of the rows of a tensor."""

    def __init__(self, rows: int = 20_000, width: int = 16):
        """Create `rows` rows."""
        self.rows = torch.arange(rows * width, dtype=torch.float32).reshape(rows, width)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


class FromStorage(Dataset[torch.Tensor]):
    """Dataset with one file per sample, on slow storage."""

    def __init__(self, folder: Path, ms: float, files: int = 4000, at_once: int = 32):
        """Write a file for a storage that answers each request after `ms`."""
        (folder / "sample").write_bytes(bytes(4096))
        self.files = files
        limits = replace(UNLIMITED, request_ms=ms, requests_at_once=at_once)
        self.storage = slow_storage(folder, limits)

    def __len__(self) -> int:
        return self.files

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.storage.open("sample") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def identity_collate(samples: list[Any]) -> list[Any]:
    """Return the samples as a list."""
    return samples
