"""Measure whether parallel reads of the emulated storage exceed what its preset allows."""

from __future__ import annotations

import multiprocessing
import random
import tempfile
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from course_utils.hardware.storage import PRESETS, UNLIMITED, SlowFileSystem, slow_storage

PIECE = 256 * 1024
INSTANT = replace(UNLIMITED, requests_at_once=32, readahead=True, cache_mb=1_000)


def main() -> None:
    """Measure and print all tables."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("NFS", "busy Lustre"):
            print_bandwidth(Path(folder), name)
        print_latency(Path(folder))


def print_bandwidth(folder: Path, preset: str) -> None:
    """Print the throughput of 1, 2, 4 and 8 processes that read large files in parallel."""
    limit = PRESETS[preset].mb_s
    print(f"\n{preset}: {limit:,.0f} MB/s; each process reads its own file, cold")
    for processes in (1, 2, 4, 8):
        fs = slow_storage(folder, preset)
        rate = rate_together(fs, processes, total=int(limit * 1e6), piece=PIECE) / 1e6
        print(f"  {processes} processes {rate:8.1f} MB/s  {rate / limit:6.1%} of the preset")


def print_latency(folder: Path) -> None:
    """Print the number of small random reads per second of 1 to 16 processes in parallel."""
    preset = PRESETS["busy Lustre"]
    print(
        f"\n{preset.name}: {preset.request_ms:g} ms a request, {preset.requests_at_once} at once; "
        "each process reads 1 kB at random positions"
    )
    for processes in (1, 2, 4, 8, 16):
        fs = slow_storage(folder, preset, cache_mb=0)
        reads = 100 * min(processes, preset.requests_at_once)
        rate = rate_together(fs, processes, total=1024 * reads, piece=1024, shuffled=True) / 1024
        most = min(processes, preset.requests_at_once) * 1e3 / preset.request_ms
        print(f"  {processes:2} processes {rate:8.1f} reads/s  {rate / most:6.1%} of {most:.0f}")


def rate_together(
    fs: SlowFileSystem,
    processes: int,
    *,
    total: int,
    piece: int,
    shuffled: bool = False,
    start_method: str = "spawn",
) -> float:
    """Return the bytes per second of `processes` parallel readers of `total` bytes."""
    share = total // processes // piece * piece
    for index in range(processes):
        make_file(fs.root / f"part-{index}", share if not shuffled else 8 * 2**20)
    context: Any = multiprocessing.get_context(start_method)
    barrier, queue = context.Barrier(processes), context.Queue()
    readers = [
        context.Process(target=_read, args=(fs, index, share, piece, shuffled, barrier, queue))
        for index in range(processes)
    ]
    for reader in readers:
        reader.start()
    starts, ends = zip(*[queue.get(timeout=120) for _ in readers], strict=True)
    for reader in readers:
        reader.join()
    return float(processes * share / (max(ends) - min(starts)) * 1e9)


def _read(
    fs: SlowFileSystem,
    index: int,
    share: int,
    piece: int,
    shuffled: bool,
    barrier: Barrier,
    queue: multiprocessing.Queue[tuple[int, int]],
) -> None:
    with fs.open(f"part-{index}") as file:
        barrier.wait()
        start = perf_counter_ns()
        for _ in range(share // piece):
            if shuffled:
                file.seek(random.randrange(file.size - piece))
            file.read(piece)
        queue.put((start, perf_counter_ns()))


def make_file(path: Path, size: int) -> Path:
    """Create a file of zeros that uses no disk space, and read it once.

    The emulation cannot be faster than the local file, so the file must be in the page cache.
    """
    with path.open("wb") as file:
        file.truncate(size)
    with path.open("rb") as file:
        while file.read(2**20):
            pass
    return path


if __name__ == "__main__":
    main()
