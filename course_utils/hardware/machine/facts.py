"""Look at the machine: what will bound a loader here, before anything is measured.

Each fact may be missing: what cannot be found out is unknown, and no reason to fail.
`print(probe())` is the page that `course doctor` shows, with what the facts mean.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from importlib import metadata
from pathlib import Path

from course_utils.hardware.machine.disk import measure_disk
from course_utils.hardware.machine.starting import start_method
from course_utils.paths import data_root
from keepfed.formatting import size
from keepfed.limits import SHM, all_cores, known, memory, memory_free, shm_size, usable_cores

PRESSURE = Path("/proc/pressure")
_GB = 1e9
_PAGE = 106  # characters; JupyterLab breaks longer lines in the middle of a word


def system() -> str:
    """Name operating system, release and processor."""
    return f"{platform.system()} {platform.release()}, {platform.machine()}"


def stamp() -> str:
    """Return machine and date, to stand beside what was measured here and now."""
    return f"{system()}, {usable_cores()} cores, {date.today():%Y-%m-%d}"


def gpus() -> tuple[str, ...]:
    """Describe each NVIDIA GPU: name, memory, driver."""
    columns = "--query-gpu=name,memory.total,driver_version"
    command = ["nvidia-smi", columns, "--format=csv,noheader"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    rows = [line.split(", ") for line in run.stdout.splitlines() if line.strip()]
    return tuple(f"{name}, {size}, driver {driver}" for name, size, driver in rows)


@dataclass(frozen=True, repr=False)
class Pressure:
    """Percent of the last 10 s in which some task waited for what; empty where no kernel tells.

    It is Linux' pressure stall information (https://docs.kernel.org/accounting/psi.html).
    """

    shares: Mapping[str, float]

    def __repr__(self) -> str:
        if not self.shares:
            return "This system keeps no pressure figures of the machine; Linux has them."
        told = ", ".join(f"for {name} {share:.0f} %" for name, share in self.shares.items())
        return f"Of the last 10 s some task waited {told}."


def pressure() -> Pressure:
    """Read how long tasks on this machine had to wait for processor, disk or memory."""
    names = {"cpu": "the processor", "io": "the disk", "memory": "memory"}
    texts = {name: known((PRESSURE / file).read_text) or "" for file, name in names.items()}
    found = {name: re.match(r"some avg10=([\d.]+)", text) for name, text in texts.items()}
    return Pressure({name: float(match[1]) for name, match in found.items() if match})


def probe(folder: str | Path | None = None) -> str:
    """Look at this machine, and say what each fact means for loading; takes about a second.

    Args:
        folder: where the data are or will be, whose disk is tried with a file of 64 MB; None: that
            of the course.

    Raises:
        CourseError: `$COURSE_START_METHOD` is none that this system has.
    """
    whole = Path(folder or data_root()).absolute()
    place = next(above for above in (whole, *whole.parents) if above.is_dir())
    torch = known(lambda: metadata.version("torch"))  # an import would take seconds
    rows = [
        ("system", system(), ""),
        ("Python", *_python()),
        ("torch", torch or "not installed", "" if torch else "run `make lab`"),
        ("cores", *_cores()),
        ("memory", *_memory()),
        ("/dev/shm", *_shm()),
        ("start method", *_start_method()),
        ("GPU", *_gpu()),
        ("disk", *_disk(place)),
        ("disk speed", *_disk_speed(place)),
    ]
    wide = max(len(value) for _, value, _ in rows)
    page = textwrap.TextWrapper(
        max(_PAGE - 16 - wide, 40), break_on_hyphens=False, break_long_words=False
    )
    told = [
        (name, value, f"\n{'':{16 + wide}}".join(page.wrap(means))) for name, value, means in rows
    ]
    return "\n".join(f"{name:12}  {value:{wide}}  {means}".rstrip() for name, value, means in told)


def _python() -> tuple[str, str]:
    version = platform.python_version()
    major, minor = (int(part) for part in version.split(".")[:2])
    was_tried = (3, 11) <= (major, minor) <= (3, 14)
    return version, "" if was_tried else "the course was tried with 3.11 to 3.14"


def _cores() -> tuple[str, str]:
    cores = known(usable_cores)
    if cores is None:
        return "unknown", "start with 2 workers"
    value = f"{cores} usable of {all_cores()}"
    if cores == 1:
        return value, "small: workers help while they wait for storage, not to compute"
    return value, f"more than {cores} workers help only while they wait for storage"


def _memory() -> tuple[str, str]:
    there = known(memory)
    if there is None:
        return "unknown", "watch it while many workers run"
    value = f"{size(there)}, {_size(known(memory_free))} free"
    if there < 4 * _GB:
        return value, "small: take data of size S and few workers, each holds its own batches"
    return value, "enough for data of size M"


def _shm() -> tuple[str, str]:
    if not SHM.is_dir():
        return "none on this system", "batches of workers take another way; nothing to do"
    there, free = known(shm_size), known(lambda: shutil.disk_usage(SHM).free)
    if there is None or free is None:
        return "unknown", "if workers die of a bus error, it is too small"
    value = f"{size(there)}, {size(free)} free"
    if free < _GB:
        return value, "small: batches travel through it; start the container with --shm-size=2g"
    return value, "enough: batches of workers travel through it"


def _start_method() -> tuple[str, str]:
    method = start_method()
    if method == "fork":
        return method, "workers start fast and copy this process; Python 3.14 does it no more"
    return method, "workers start anew: what they use must live in a file (%%worker_module)"


def _gpu() -> tuple[str, str]:
    if there := known(gpus):
        return "; ".join(there), "the same cells measure the real one"
    return "none", "an emulated accelerator is used, and says so on every picture"


def _disk(place: Path) -> tuple[str, str]:
    free = known(lambda: shutil.disk_usage(place).free)
    if free is not None and free < 5 * _GB:
        means = "small: data of size M and copies take 3 GB; take size S"
    else:
        means = "enough for data of size M" if free else ""
    return f"{_size(free)} free", f"{means} (in {place})".strip()


def _disk_speed(place: Path) -> tuple[str, str]:
    has_room = known(lambda: shutil.disk_usage(place).free > _GB)
    disk = known(lambda: measure_disk(place)) if has_room else None
    if disk is None:
        return "unknown", "not measured: the folder is read-only or nearly full"
    return str(disk), disk.means


def _size(count: int | None) -> str:
    return "unknown" if count is None else size(count)
