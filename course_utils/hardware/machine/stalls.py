"""Read how long tasks had to wait for processor, disk or memory: Linux' pressure stall information.

`some` is the share of time in which at least one task waited, `full` that in which all of them did
(https://docs.kernel.org/accounting/psi.html).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from course_utils.hardware.machine.facts import known, own_group

_MACHINE = Path("/proc/pressure")


@dataclass(frozen=True)
class Stall:
    """Percent of the last 10 and 60 seconds in which tasks waited for one resource."""

    some_10s: float
    full_10s: float
    some_60s: float
    full_60s: float
    total_s: float  # in which some task waited, since the machine or the group was started


@dataclass(frozen=True, repr=False)
class Pressure:
    """The stalls of the machine or of one control group; None where the kernel does not tell."""

    of: str  # "machine" or "cgroup"
    cpu: Stall | None = None
    io: Stall | None = None
    memory: Stall | None = None

    def __repr__(self) -> str:
        """Say it in one sentence."""
        what = {"the processor": self.cpu, "the disk": self.io, "memory": self.memory}
        told = [f"{name} {stall.some_10s:.0f} %" for name, stall in what.items() if stall]
        if not told:
            return f"This system keeps no pressure figures of the {self.of}; Linux has them."
        return f"In the last 10 s, some task of the {self.of} waited for {', '.join(told)} of it."


def pressure() -> Pressure:
    """Read the pressure on the whole machine; all None where there is none to be read."""
    stalls = {name: _read(_MACHINE / name) for name in ("cpu", "io", "memory")}
    return Pressure("machine", **stalls)


def cgroup_pressure() -> Pressure:
    """Read the pressure on the control group (version 2) of this process, such as a container."""
    group = own_group()
    stalls = {name: _read(group / f"{name}.pressure") for name in ("cpu", "io", "memory")}
    return Pressure("cgroup", **stalls)


def _read(file: Path) -> Stall | None:
    return known(lambda: _parse(file.read_text()))


def _parse(text: str) -> Stall:
    """Read lines such as `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`."""
    lines = {kind: dict(word.split("=") for word in words) for kind, *words in _words(text)}
    some, full = lines["some"], lines.get("full", {})  # older kernels have no full for the cpu
    return Stall(
        some_10s=float(some["avg10"]),
        full_10s=float(full.get("avg10", 0)),
        some_60s=float(some["avg60"]),
        full_60s=float(full.get("avg60", 0)),
        total_s=int(some["total"]) / 1e6,
    )


def _words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line]
