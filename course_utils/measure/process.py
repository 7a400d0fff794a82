"""What the operating system tells of a process; where it does not tell, the answer is nothing."""

from __future__ import annotations

import os

import psutil


def delay_s() -> float:
    """Return the seconds for which this thread was ready to run and got no core."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def bytes_read() -> tuple[int, int]:
    """Return the bytes that this process has read, and those of them that came from a disk."""
    try:
        with open("/proc/self/io", "rb") as file:
            figures = dict(line.split(b": ") for line in file.read().splitlines())
        return int(figures[b"rchar"]), int(figures[b"read_bytes"])
    except (OSError, KeyError, ValueError):
        return 0, 0


def own_bytes() -> int:
    """Return the memory of this process alone; on Linux without what a file can give again."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            lines = (line.split() for line in file)
            return next(int(words[1]) << 10 for words in lines if words[0] == b"Private_Dirty:")
    except (OSError, StopIteration):
        pass
    try:
        return int(psutil.Process().memory_full_info().uss)
    except (psutil.Error, OSError):
        return 0


def affinity(process: int) -> set[int]:
    """Return the cores that a process may use; empty where the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return set()
    try:
        return set(os.sched_getaffinity(process))
    except OSError:
        return set()
