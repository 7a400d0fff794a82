"""Report the cores and the memory that this process may use, including limits of containers.

A training of several processes shares them, so this also tells which rank this process is. Some
systems do not report every value. Use `known` to get None instead of an error.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from keepfed.errors import required

SHM = Path("/dev/shm")
CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")

T = TypeVar("T")


def known(fact: Callable[[], T]) -> T | None:
    """Return the result of `fact`, or None if this system does not report it."""
    try:
        return fact()
    except Exception:
        return None


def all_cores() -> int:
    """Count the cores of the machine."""
    return os.cpu_count() or 1


def affinity(process: int = 0) -> set[int]:
    """Return the cores that a process may use (0 for this process), or an empty set if unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return set()
    try:
        return set(os.sched_getaffinity(process))
    except OSError:
        return set()


def usable_cores() -> int:
    """Count the cores that this process may use, by its affinity and the container's CPU limit."""
    return max(1, int(min([len(affinity()) or all_cores(), *_cpu_quotas()])))


def memory() -> int:
    """Return the bytes of memory of the machine, or the container's limit if it is lower."""
    total: int = required("psutil").virtual_memory().total
    return min([total, *(limit for limit, _ in _memory_limits())])


def memory_free() -> int:
    """Return the bytes that can be allocated without swapping, within the container's limit."""
    available: int = required("psutil").virtual_memory().available
    return max(0, min([available, *(limit - used for limit, used in _memory_limits())]))


def shm_size() -> int:
    """Return the size of /dev/shm in bytes."""
    return shutil.disk_usage(SHM).total


def _limits(name: str, old_name: str) -> Iterator[tuple[Path, list[str]]]:
    """Yield the file and the values of a limit, for every control group that contains this process.

    Version 1 of control groups has one tree per controller, and other file names than version 2.
    """
    controller = name.partition(".")[0]
    for line in (known(_OWN_CGROUP.read_text) or "0::/").splitlines():
        _, controllers, inside = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = CGROUPS / controller if controllers else CGROUPS
        own = root / inside.lstrip("/")
        for group in (own, *(above for above in own.parents if above.is_relative_to(root))):
            path = group / (old_name if controllers else name)
            words = (known(path.read_text) or "max").split()
            if words and words[0] not in ("max", "-1"):
                yield path, words


def _cpu_quotas() -> Iterator[float]:
    for path, (quota, *period) in _limits("cpu.max", "cpu.cfs_quota_us"):
        period = period or [(path.parent / "cpu.cfs_period_us").read_text()]
        yield int(quota) / int(period[0])


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Yield limit and usage in bytes. Cached files that can be evicted count as free."""
    uses = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}
    for path, words in _limits("memory.max", "memory.limit_in_bytes"):
        used = int((path.parent / uses[path.name]).read_text())
        lines = (known((path.parent / "memory.stat").read_text) or "").splitlines()
        counts = dict(line.split() for line in lines)
        files = counts.get("total_inactive_file", counts.get("inactive_file", 0))
        yield int(words[0]), used - int(files)


def has_group() -> bool:
    """Return whether this process has joined a process group of torch.distributed."""
    distributed: Any = sys.modules.get("torch.distributed")
    return bool(distributed and distributed.is_available() and distributed.is_initialized())


def get_rank() -> tuple[int, int]:
    """Return the rank of this process, and the number of ranks.

    They come from torch.distributed, or else from the variables RANK and WORLD_SIZE, which torchrun
    sets before Python starts and workers inherit.

    Raises:
        ValueError: If only one of the two variables is set, or if they are not whole numbers.
    """
    if has_group():
        distributed = sys.modules["torch.distributed"]
        return distributed.get_rank(), distributed.get_world_size()
    rank, world_size = (os.environ.get(name) for name in ("RANK", "WORLD_SIZE"))
    try:
        return (int(rank or ""), int(world_size or "")) if rank or world_size else (0, 1)
    except ValueError as error:
        raise ValueError(
            f"The environment has RANK={rank} and WORLD_SIZE={world_size}. Set both to whole "
            "numbers, as torchrun does, or unset both."
        ) from error
