"""Single facts about the machine, each of which may be missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import TypeVar

SHM = Path("/dev/shm")
CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")

T = TypeVar("T")


def known(fact: Callable[[], T]) -> T | None:
    """Return the fact, or None where this system does not tell."""
    try:
        return fact()
    except Exception:
        return None


def system() -> str:
    """Name operating system, release and processor."""
    return f"{platform.system()} {platform.release()}, {platform.machine()}"


def python() -> str:
    """Return the version of Python."""
    return platform.python_version()


def torch_version() -> str:
    """Return the version of torch without importing it."""
    return metadata.version("torch")


def all_cores() -> int:
    """Count the cores of the machine."""
    return os.cpu_count() or 1


def usable_cores() -> int:
    """Count the cores that this process may use: its affinity, and the quota of the container."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else all_cores()
    return max(1, int(min([allowed, *_cpu_quotas()])))


def stamp() -> str:
    """Return machine and date, to stand beside what was measured here and now."""
    return f"{system()}, {usable_cores()} cores, {date.today():%Y-%m-%d}"


def memory() -> int:
    """Return the bytes of memory, or the limit of the container if that is less."""
    import psutil

    return min([psutil.virtual_memory().total, *_memory_limits()])


def memory_free() -> int:
    """Return the bytes that can be had without swapping, within the limit of the container."""
    import psutil

    free = [limit - used for limit, used in zip(_memory_limits(), _memory_uses(), strict=True)]
    return max(0, min([psutil.virtual_memory().available, *free]))


def shm_size() -> int:
    """Return the bytes that /dev/shm may hold."""
    return shutil.disk_usage(SHM).total


def disk_free(folder: Path) -> int:
    """Return the free bytes of the disk under a folder."""
    return shutil.disk_usage(folder).free


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    whole = folder.absolute()
    return next(place for place in (whole, *whole.parents) if place.is_dir())


def gpus() -> tuple[str, ...]:
    """Describe each NVIDIA GPU: name, memory, driver."""
    columns = "--query-gpu=name,memory.total,driver_version"
    command = ["nvidia-smi", columns, "--format=csv,noheader"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    rows = [line.split(", ") for line in run.stdout.splitlines() if line.strip()]
    return tuple(f"{name}, {size}, driver {driver}" for name, size, driver in rows)


def own_group() -> Path:
    """Return the folder of this process's control group (version 2), which may not exist."""
    text = known(_OWN_CGROUP.read_text) or ""
    inside = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")
    return CGROUPS / inside.lstrip("/")


def _own_groups() -> Iterator[Path]:
    """Yield the control groups (version 2) of this process, from its own to the outermost."""
    yield from _up_to(CGROUPS, own_group())


def _old_groups(controller: str) -> Iterator[Path]:
    """Yield those of version 1, where each controller has its own."""
    lines = [line.split(":", 2) for line in (known(_OWN_CGROUP.read_text) or "").splitlines()]
    inside = next((line[2] for line in lines if controller in line[1].split(",")), "/")
    root = CGROUPS / controller
    yield from _up_to(root, root / inside.lstrip("/"))


def _up_to(root: Path, group: Path) -> Iterator[Path]:
    yield group
    while group != root:
        group = group.parent
        yield group


def _limits(name: str, old_name: str) -> Iterator[tuple[Path, list[str]]]:
    """Yield the words of a limit in every group that sets one; `old_name` is that of version 1."""
    old = _old_groups(old_name.partition(".")[0])
    for path in [*(group / name for group in _own_groups()), *(group / old_name for group in old)]:
        words = (known(path.read_text) or "max").split()
        if words and words[0] not in ("max", "-1"):
            yield path, words


def _cpu_quotas() -> Iterator[float]:
    for path, (quota, *period) in _limits("cpu.max", "cpu.cfs_quota_us"):
        yield int(quota) / int(
            period[0] if period else (path.parent / "cpu.cfs_period_us").read_text()
        )


def _memory_limits() -> list[int]:
    return [int(words[0]) for _, words in _limits("memory.max", "memory.limit_in_bytes")]


def _memory_uses() -> list[int]:
    uses = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}
    found = _limits("memory.max", "memory.limit_in_bytes")
    used = [(path, int((path.parent / uses[path.name]).read_text())) for path, _ in found]
    return [in_use - _reclaimable(path.parent) for path, in_use in used]


def _reclaimable(group: Path) -> int:
    """Return the bytes of files that a group has in memory and would give up for something else."""
    lines = (known((group / "memory.stat").read_text) or "").splitlines()
    counts = dict(line.split() for line in lines)
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
