"""Facts about this machine that limit a data loader, before anything is measured.

A fact that cannot be determined is shown as unknown. This is not an error. `print(probe())` is the
page that `course check` shows, including an explanation of each fact.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from datetime import date
from importlib import metadata
from pathlib import Path

from course_utils.hardware.machine.starting import start_method
from course_utils.paths import data_root
from keepfed.formatting import columns, size, wrap
from keepfed.limits import SHM, all_cores, known, memory, memory_free, shm_size, usable_cores

PRESSURE = Path("/proc/pressure")
_GB = 1e9
_PAGE = 106  # characters; JupyterLab wraps longer lines in the middle of a word


def system() -> str:
    """Return operating system, release and processor architecture."""
    return f"{platform.system()} {platform.release()}, {platform.machine()}"


def stamp() -> str:
    """Return machine and date, for a caption next to a measurement."""
    return f"{system()}, {usable_cores()} cores, {date.today():%Y-%m-%d}"


def gpus() -> tuple[str, ...]:
    """Return name, memory and driver version of each NVIDIA GPU."""
    query = "--query-gpu=name,memory.total,driver_version"
    command = ["nvidia-smi", query, "--format=csv,noheader"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    rows = [line.split(", ") for line in run.stdout.splitlines() if line.strip()]
    return tuple(f"{name}, {size}, driver {driver}" for name, size, driver in rows)


def pressure() -> str:
    """Return in how much of the last 10 s a task waited for the CPU, the disk and memory.

    Linux calls this pressure stall information (https://docs.kernel.org/accounting/psi.html).
    """
    waits = []
    for file, name in {"cpu": "the CPU", "io": "the disk", "memory": "memory"}.items():
        if share := re.match(r"some avg10=([\d.]+)", known((PRESSURE / file).read_text) or ""):
            waits.append(f"for {name} {float(share[1]):.0f} %")
    if not waits:
        return "This system does not report pressure. Linux does."
    return f"Share of the last 10 s in which at least one task waited: {', '.join(waits)}."


def probe() -> str:
    """Return the facts about this machine, each with its meaning for data loading.

    Raises:
        CourseError: If this system does not support `$COURSE_START_METHOD`.
    """
    data = data_root()  # perhaps not yet there
    place = next(above for above in (data, *data.parents) if above.is_dir())
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
    ]
    wide, between = max(len(value) for _, value, _ in rows), "  "
    if columns(_PAGE) < wide + 46:  # a narrow terminal has each meaning below its value
        wide, between = 0, f"\n{'':14}"
    lines = [f"{name:12}  {value:{wide}}{between}{means}".rstrip() for name, value, means in rows]
    return wrap("\n".join(lines), indent=16 + wide if wide else 14, most=_PAGE)


def _python() -> tuple[str, str]:
    was_tried = (3, 11) <= sys.version_info[:2] <= (3, 14)
    return platform.python_version(), "" if was_tried else "the course was tested with 3.11 to 3.14"


def _cores() -> tuple[str, str]:
    cores = known(usable_cores)
    if cores is None:
        return "unknown", "start with 2 workers"
    more = "small: workers" if cores == 1 else f"more than {cores} workers"
    return f"{cores} usable of {all_cores()}", f"{more} help only while they wait for storage"


def _memory() -> tuple[str, str]:
    total = known(memory)
    small = "small: use data of size S and few workers, as each holds its own batches"
    means = _meaning(total, 4 * _GB, "enough for data of size M", small)
    return f"{_size(total)}, {_size(known(memory_free))} free", means


def _shm() -> tuple[str, str]:
    if not SHM.is_dir():
        return "none on this system", "workers send batches in a different way; nothing to do"
    total, free = known(shm_size), known(lambda: shutil.disk_usage(SHM).free)
    small = "small: workers send batches through it; start Docker with --shm-size=2g"
    means = _meaning(free, _GB, "enough: workers send batches through it", small)
    return f"{_size(total)}, {_size(free)} free", means


def _start_method() -> tuple[str, str]:
    method = start_method()
    if method == "fork":
        return method, "workers start fast as copies of this process; not default in Python 3.14"
    return method, "workers import their code, so it must be in a file (%%worker_module)"


def _gpu() -> tuple[str, str]:
    if names := known(gpus):
        return "; ".join(names), "the same cells measure the real one"
    return "none", "an emulated accelerator is used, and every picture is labeled"


def _disk(place: Path) -> tuple[str, str]:
    free = known(lambda: shutil.disk_usage(place).free)
    small = "small: data of size M and its copies need 3 GB; use size S"
    means = _meaning(free, 5 * _GB, "enough for data of size M", small)
    return f"{_size(free)} free", f"{means} (in {place})"


def _meaning(count: int | None, least: float, enough: str, small: str) -> str:
    if count is None:
        return "watch it while many workers run"
    return small if count < least else enough


def _size(count: int | None) -> str:
    return "unknown" if count is None else size(count)
