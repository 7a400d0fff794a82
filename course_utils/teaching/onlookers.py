"""Look at a running loader from outside, as py-spy, htop and iotop do, and say what that misses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Look:
    """What one tool showed, and what it can and cannot see."""

    tool: str
    shows: str  # plain text, as a terminal would show it
    sees: str
    misses: str
    note: str = ""  # why it could not look here, and whose recording is shown instead

    def __repr__(self) -> str:
        """Return what a terminal would show, and the sentences."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        raise NotImplementedError


def worker_pids() -> list[int]:
    """Return the processes that this one started and that run now: the workers of its loaders."""
    raise NotImplementedError


def stacks(pid: int | None = None) -> Look:
    """Show the line of Python at which each thread of a process is now (`py-spy dump`).

    Args:
        pid: a worker's, as `worker_pids()` lists them; None: this very process.
    """
    raise NotImplementedError


def hot_lines(pid: int | None = None, *, seconds: float = 2.0) -> Look:
    """Count at which lines a process was, looking a hundred times a second (`py-spy record`)."""
    raise NotImplementedError


def cpu_use(*, seconds: float = 1.0) -> Look:
    """Show how busy this process and each of its workers keep a core, as htop does."""
    raise NotImplementedError


def disk_use(*, seconds: float = 1.0) -> Look:
    """Show what this process and each of its workers read and wrote, as iotop does."""
    raise NotImplementedError
