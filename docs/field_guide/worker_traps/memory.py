"""Demonstrations: what workers and their batches do to the memory."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from course_utils.loading.workers import LazyFile, nbytes
from notebooks.stories.worker_traps.traps import QUICK, Numbers


class FirstFrames(Dataset[torch.Tensor]):
    """Makes clips of 64 frames and returns the first frame of each."""

    def __init__(self, copy: bool):
        self.copy = copy

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> torch.Tensor:
        frame = torch.zeros(64, 3, 128, 128)[0]
        return frame.clone() if self.copy else frame


def view(mended: bool) -> Numbers:
    """Send one frame of each clip; the MB that it shows, and the MB that travel."""
    loader = DataLoader(
        FirstFrames(copy=mended), batch_size=None, num_workers=2, multiprocessing_context=QUICK
    )
    *_, frame = loader
    return {"MB of the frame": round(frame.nbytes / 1e6, 2), "sent": round(nbytes(frame) / 1e6, 2)}


class Large(Dataset[torch.Tensor]):
    """Batches of 24 MB."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.ones(6_000_000)


def in_flight(mended: bool) -> Numbers:
    """Let two workers prefetch 4 batches each, or 1; the MB by the formula, and those there are."""
    prefetch = 1 if mended else 4
    loader = DataLoader(
        Large(),
        batch_size=None,
        num_workers=2,
        prefetch_factor=prefetch,
        multiprocessing_context=QUICK,
    )
    batches = iter(loader)
    batch = next(batches)
    expected = (loader.num_workers * prefetch + 1) * nbytes(batch)
    workers = batches._workers  # type: ignore[attr-defined]
    seen = _once_it_rests(lambda: shared_bytes(os.getpid(), *(w.pid for w in workers)))
    return {"MB expected": round(expected / 1e6), "seen": round(seen / 1e6)}


def shared_bytes(*pids: int) -> int:
    """Return the bytes of the tensors in shared memory that processes hold, each counted once."""
    sizes = {}
    for handle in (handle for pid in pids for handle in Path(f"/proc/{pid}/fd").iterdir()):
        with suppress(FileNotFoundError):  # closed meanwhile
            if "/torch_" in os.readlink(handle):
                sizes[handle.stat().st_ino] = handle.stat().st_size
    return sum(sizes.values())


def _once_it_rests(quantity: Callable[[], int], rest_s: float = 1.0) -> int:
    """Return a quantity that grows, once it has not changed for a while."""
    last, since = quantity(), time.monotonic()
    while time.monotonic() - since < rest_s:
        time.sleep(0.05)
        if (now := quantity()) != last:
            last, since = now, time.monotonic()
    return last


def memory_map(mended: bool) -> Numbers:
    """Pickle a map of a 50 MB file, or how to open it; what every worker gets sent."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.npy"
        np.save(path, np.zeros(12_500_000, np.float32))
        data = LazyFile(np.load, path, mmap_mode="r") if mended else np.load(path, mmap_mode="r")
        return {"bytes sent": len(pickle.dumps(data))}
