"""Read a file again and again under a memory limit; record what Linux's page cache still held.

sudo python notebooks/recordings/make_page_cache.py page_cache.json

The file lies beside the result, on a disk. Readahead is off, so each read must find its own bytes.
"""

import json
import os
import platform
import random
import sys
import tempfile
from collections.abc import Iterable
from datetime import date
from pathlib import Path

LIMIT, BLOCK, EPOCHS = 96 << 20, 64 << 10, 12
SIZES = [0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5]  # times the page cache


def main(result: str) -> None:
    """Fill a limited page cache to learn its size, then read files of all sizes in both orders."""
    with tempfile.TemporaryFile(dir=Path(result).resolve().parent, buffering=0) as data:
        file, count = data.fileno(), 3 * LIMIT // BLOCK
        for _ in range(count):
            data.write(os.urandom(BLOCK))
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        old = Path("/sys/fs/cgroup/memory").exists()  # version 1 of control groups
        group = Path("/sys/fs/cgroup/memory" if old else "/sys/fs/cgroup") / "page_cache"
        group.mkdir()
        try:
            (group / ("memory.limit_in_bytes" if old else "memory.max")).write_text(str(LIMIT))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            share_cached(file, range(count))
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            cache = int(stat["cache" if old else "file"])
            found = {
                order: [epochs(file, round(size * cache / BLOCK), order) for size in SIZES]
                for order in ("in order", "shuffled")
            }
        finally:
            (group.parent / "cgroup.procs").write_text(str(os.getpid()))
            group.rmdir()
    about = {"sizes": SIZES, "cache_mb": cache / 1e6, "block_kb": BLOCK / 1e3}
    about["kernel"] = ".".join(platform.release().split(".")[:2])
    about["mglru"] = Path(
        "/sys/kernel/mm/lru_gen"
    ).exists()  # the newer way to choose what to evict
    about |= {"machine": f"Linux, {os.cpu_count()} cores", "date": f"{date.today():%B %Y}"}
    Path(result).write_text(json.dumps(about | found) + "\n", "utf-8")


def epochs(file: int, count: int, order: str) -> list[float]:
    """Return the share of `count` blocks that each epoch found in the page cache."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    orders = ([*range(count)] for _ in range(EPOCHS))
    shuffled = order == "shuffled"
    return [share_cached(file, random.sample(b, count) if shuffled else b) for b in orders]


def share_cached(file: int, blocks: Iterable[int]) -> float:
    """Read the blocks; return the share of their bytes that did not come from the disk."""
    before = _from_disk()
    read = sum(len(os.pread(file, BLOCK, block * BLOCK)) for block in blocks)
    return round(1 - (_from_disk() - before) / read, 3)


def _from_disk() -> int:
    rows = Path("/proc/self/io").read_text("utf-8").splitlines()
    return int(dict(row.split(": ") for row in rows)["read_bytes"])


if __name__ == "__main__":
    main(*sys.argv[1:])
