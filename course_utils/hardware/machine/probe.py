"""Look at the machine: what will bound a loader here, before anything is measured.

`print(probe())` is the page that `course doctor` shows. What cannot be found out is unknown, and no
reason to fail. `machine_facts` looks, this module finds the words.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from course_utils.hardware.machine import facts as facts
from course_utils.hardware.machine.disk_speed import DiskSpeed, measure_disk
from course_utils.hardware.machine.starting import start_method

_GB = 1e9


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
    place = facts.existing(Path(folder))
    free = facts.known(lambda: facts.disk_free(place))
    return Machine(
        system=facts.system(),
        cores=facts.known(facts.usable_cores),
        cores_of_machine=facts.known(facts.all_cores),
        memory=facts.known(facts.memory),
        memory_free=facts.known(facts.memory_free),
        has_shm=facts.SHM.is_dir(),
        shm=facts.known(facts.shm_size),
        shm_free=facts.known(lambda: facts.disk_free(facts.SHM)),
        start_method=start_method(),
        python=facts.python(),
        torch=facts.known(facts.torch_version),
        gpus=facts.known(facts.gpus) or (),
        folder=place,
        disk_free=free,
        disk=facts.known(lambda: measure_disk(place)) if free and free > _GB else None,
    )


def _size(count: int | None) -> str:
    if count is None:
        return "unknown"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _python_means(version: str) -> str:
    major, minor = (int(part) for part in version.split(".")[:2])
    return "" if (3, 11) <= (major, minor) <= (3, 14) else "the course was tried with 3.11 to 3.14"


def _start_method_means(method: str) -> str:
    if method == "fork":
        return "workers start fast and copy this process; Python 3.14 does it no more"
    return "workers start anew: what they use must live in a file (%%worker_module)"
