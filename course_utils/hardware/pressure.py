"""Read how long tasks had to wait for processor, disk or memory: Linux' pressure stall information.

`some` is the share of time in which at least one task waited, `full` that in which all of them did
(https://docs.kernel.org/accounting/psi.html).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
        raise NotImplementedError


def pressure() -> Pressure:
    """Read the pressure on the whole machine; all None where there is none to be read."""
    raise NotImplementedError


def cgroup_pressure() -> Pressure:
    """Read the pressure on the control group (version 2) of this process, such as a container."""
    raise NotImplementedError
