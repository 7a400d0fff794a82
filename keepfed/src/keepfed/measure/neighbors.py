"""Measure how many cores this program's child processes and other programs keep busy."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from keepfed.errors import required
from keepfed.limits import all_cores, known, usable_cores


class Neighbors:
    """Counter of the CPU time that other programs use after its creation."""

    def __init__(self) -> None:
        self._begun_s, self._before_s = time.perf_counter(), known(_other_programs_cpu_s)

    def cores(self) -> float:
        """Return how many cores other programs kept busy since then, 0.0 if unknown.

        The number is unknown if this process may use only some of the cores.
        """
        lasted_s, now_s = time.perf_counter() - self._begun_s, known(_other_programs_cpu_s)
        if self._before_s is None or now_s is None or usable_cores() < all_cores():
            return 0.0
        return max(0.0, now_s - self._before_s) / max(lasted_s, 1e-9)


def children_cpu_s() -> float:
    """Return the CPU seconds of all child processes, including those that have ended."""
    psutil, times = required("psutil"), os.times()
    total = times.children_user + times.children_system
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            spent = child.cpu_times()
            total += spent.user + spent.system
    return total


def _other_programs_cpu_s() -> float:
    """Return the CPU seconds of all programs except this process and its children."""
    times = required("psutil").cpu_times()
    # Leave `guest` out, because on Linux `user` already contains it.
    others = ("idle", "iowait", "guest", "guest_nice")
    busy = sum(times) - sum(getattr(times, name, 0.0) for name in others)
    return float(busy) - time.process_time() - children_cpu_s()
