"""Look at the machine: what will bound a loader here, before anything is measured.

Each fact may be missing: what cannot be found out is unknown, and no reason to fail.
`print(probe())` is the page that `course doctor` shows, with what the facts mean.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from course_utils.hardware.machine.disk import DiskSpeed, measure_disk
from course_utils.hardware.machine.starting import start_method
from course_utils.words import size

SHM = Path("/dev/shm")
CGROUPS = Path("/sys/fs/cgroup")
PRESSURE = Path("/proc/pressure")
_OWN_CGROUP = Path("/proc/self/cgroup")
_GB = 1e9

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


@dataclass(frozen=True, repr=False)
class Pressure:
    """Percent of the last 10 s in which some task waited; None where the kernel does not tell.

    It is Linux' pressure stall information (https://docs.kernel.org/accounting/psi.html).
    """

    cpu: float | None = None
    io: float | None = None
    memory: float | None = None

    def __repr__(self) -> str:
        """Say it in one sentence."""
        what = {"the processor": self.cpu, "the disk": self.io, "memory": self.memory}
        told = [f"{name} {share:.0f} %" for name, share in what.items() if share is not None]
        if not told:
            return "This system keeps no pressure figures of the machine; Linux has them."
        return f"In the last 10 s, some task of the machine waited for {', '.join(told)} of it."


def pressure() -> Pressure:
    """Read how long tasks on this machine had to wait for processor, disk or memory."""
    texts = {name: known((PRESSURE / name).read_text) or "" for name in ("cpu", "io", "memory")}
    found = {name: re.match(r"some avg10=([\d.]+)", text) for name, text in texts.items()}
    return Pressure(**{name: float(match[1]) for name, match in found.items() if match})


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What `probe` found. Sizes are bytes; None is unknown."""

    system: str
    cores: int | None  # that this process may use
    cores_of_machine: int | None
    memory: int | None  # the machine's, or the limit of the container if that is less
    memory_free: int | None
    has_shm: bool
    shm: int | None
    shm_free: int | None
    start_method: str  # of the notebooks
    python: str
    torch: str | None
    gpus: tuple[str, ...]
    folder: Path
    disk_free: int | None
    disk: DiskSpeed | None

    def __str__(self) -> str:
        rows = [
            ("system", self.system, ""),
            ("Python", self.python, _python_means(self.python)),
            ("torch", self.torch or "not installed", "" if self.torch else "run `make lab`"),
            ("cores", *self._cores()),
            ("memory", *self._memory()),
            ("/dev/shm", *self._shm()),
            ("start method", self.start_method, _start_method_means(self.start_method)),
            ("GPU", *self._gpu()),
            ("disk", *self._disk()),
            ("disk speed", *self._speed()),
        ]
        wide = max(len(value) for _, value, _ in rows)
        return "\n".join(f"{name:12}  {value:{wide}}  {so}".rstrip() for name, value, so in rows)

    def _cores(self) -> tuple[str, str]:
        if self.cores is None:
            return "unknown", "start with 2 workers"
        value = f"{self.cores} usable of {self.cores_of_machine or self.cores}"
        if self.cores == 1:
            return value, "small: workers help while they wait for storage, not to compute"
        return value, f"more than {self.cores} workers help only while they wait for storage"

    def _memory(self) -> tuple[str, str]:
        if self.memory is None:
            return "unknown", "watch it while many workers run"
        value = f"{_size(self.memory)}, {_size(self.memory_free)} free"
        if self.memory < 4 * _GB:
            return value, "small: take data of size S and few workers, each holds its own batches"
        return value, "enough for data of size M"

    def _shm(self) -> tuple[str, str]:
        if not self.has_shm:
            return "none on this system", "batches of workers take another way; nothing to do"
        if self.shm is None or self.shm_free is None:
            return "unknown", "if workers die of a bus error, it is too small"
        value = f"{_size(self.shm)}, {_size(self.shm_free)} free"
        if self.shm_free < _GB:
            return value, "small: batches travel through it; start the container with --shm-size=2g"
        return value, "enough: batches of workers travel through it"

    def _gpu(self) -> tuple[str, str]:
        if not self.gpus:
            return "none", "an emulated accelerator is used, and says so on every picture"
        return "; ".join(self.gpus), "the same cells measure the real one"

    def _disk(self) -> tuple[str, str]:
        value, place = f"{_size(self.disk_free)} free", f"(in {self.folder})"
        if self.disk_free is not None and self.disk_free < 5 * _GB:
            return value, f"small: data of size M and copies take 3 GB; take size S {place}"
        return value, f"enough for data of size M {place}" if self.disk_free else place

    def _speed(self) -> tuple[str, str]:
        if self.disk is None:
            return "unknown", "not measured: the folder is read-only or nearly full"
        return str(self.disk), self.disk.means


def probe(folder: str | Path = ".") -> Machine:
    """Look at this machine; takes about a second.

    Args:
        folder: where the data are or will be; the disk under it is tried with a file of 64 MB.

    Raises:
        CourseError: `$COURSE_START_METHOD` is none that this system has.
    """
    place = existing(Path(folder))
    free = known(lambda: disk_free(place))
    return Machine(
        system=system(),
        cores=known(usable_cores),
        cores_of_machine=known(all_cores),
        memory=known(memory),
        memory_free=known(memory_free),
        has_shm=SHM.is_dir(),
        shm=known(shm_size),
        shm_free=known(lambda: disk_free(SHM)),
        start_method=start_method(),
        python=python(),
        torch=known(torch_version),
        gpus=known(gpus) or (),
        folder=place,
        disk_free=free,
        disk=known(lambda: measure_disk(place)) if free and free > _GB else None,
    )


def _size(count: int | None) -> str:
    return "unknown" if count is None else size(count)


def _python_means(version: str) -> str:
    major, minor = (int(part) for part in version.split(".")[:2])
    return "" if (3, 11) <= (major, minor) <= (3, 14) else "the course was tried with 3.11 to 3.14"


def _start_method_means(method: str) -> str:
    if method == "fork":
        return "workers start fast and copy this process; Python 3.14 does it no more"
    return "workers start anew: what they use must live in a file (%%worker_module)"


def _own_groups() -> Iterator[Path]:
    """Yield the control groups (version 2) of this process, from its own to the outermost."""
    text = known(_OWN_CGROUP.read_text) or ""
    inside = next((line[3:] for line in text.splitlines() if line.startswith("0::")), "/")
    yield from _up_to(CGROUPS, CGROUPS / inside.lstrip("/"))


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
