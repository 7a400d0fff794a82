"""Measure the emulated storage: shared bandwidth and latency, and the page cache.

The important figures are ratios. Parallel reads must not exceed the preset's bandwidth, and the hit
rate must drop when the data outgrow the page cache.
"""

from __future__ import annotations

import multiprocessing
import random
import tempfile
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import IO, Any

from course_utils.hardware.storage import BLOCK, PRESETS, UNLIMITED, SlowFileSystem, slow_storage

PIECE = 256 * 1024
INSTANT = replace(UNLIMITED, requests_at_once=32, readahead=True, cache_mb=1_000)


def main() -> None:
    """Measure and print all tables."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("NFS", "busy Lustre"):
            print_bandwidth(Path(folder), name)
        print_latency(Path(folder))
        print_cliff(Path(folder))
        print_overhead(Path(folder))


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


def print_cliff(folder: Path) -> None:
    """Print the hit share in the third epoch, for data around the size of the page cache."""
    cache_mb = 64 * BLOCK * 8 / 1e6
    print(f"\nPage cache of {cache_mb:.1f} MB: hit share in the third epoch")
    for times in (0.9, 1.0, 1.1, 1.5):
        for order in ("sequential", "shuffled"):
            share = hit_share(folder, cache_mb, times=times, shuffled=order == "shuffled")
            print(f"  data {times:.1f}x the cache, {order:10}  {share:6.1%}")


def print_overhead(folder: Path) -> None:
    """Print the overhead of one request in addition to its sleep, and the cost of a local read."""
    path = make_file(folder / "overhead", 64 * BLOCK)
    fs = slow_storage(folder, INSTANT)
    with fs.open(path.name) as file:
        cold = _per_read_us(file)
        warm = _per_read_us(file)
    with path.open("rb") as local:
        bare = _per_read_us(local)
    print(f"\nOne read of 1 kB: {cold:.1f} µs on a miss, {warm:.1f} µs on a hit (bar 100)")
    print(f"  the local file only {bare:.1f} µs")


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


def hit_share(folder: Path, cache_mb: float, *, times: float, shuffled: bool) -> float:
    """Return the hit share in the third epoch over data `times` as large as the page cache."""
    blocks = int(times * cache_mb * 1e6) // BLOCK
    make_file(folder / "epochs", blocks * BLOCK)
    fs = slow_storage(folder, INSTANT, cache_mb=cache_mb)
    order = list(range(blocks))
    rng = random.Random(0)
    with fs.open("epochs") as file:
        for _ in range(3):
            fs.reset_counters()
            if shuffled:
                rng.shuffle(order)
            for block in order:
                file.seek(block * BLOCK)
                file.read(BLOCK)
    return fs.counters().hit_share


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


def _per_read_us(file: IO[bytes]) -> float:
    times = []
    for block in range(64):
        start = perf_counter()
        file.seek(block * BLOCK)
        file.read(1024)
        times.append((perf_counter() - start) * 1e6)
    return median(times)


if __name__ == "__main__":
    main()
