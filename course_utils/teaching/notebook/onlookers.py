"""Look at a running loader from outside, as py-spy, htop and iotop do, and say what that misses."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from course_utils.paths import recording
from course_utils.teaching.notebook.cards import block, card

T = TypeVar("T")

_LONGEST_S = 30.0  # for py-spy to look
_MOST_LINES = 8


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
        return "\n".join(filter(None, (self.note, self.shows, self.sees, self.misses)))

    def _repr_html_(self) -> str:
        return card("plain", self.tool, self.note, self.sees, self.misses, body=block(self.shows))


def worker_pids() -> list[int]:
    """Return the processes that this one started and that run now: the workers of its loaders."""
    return sorted(p.pid for p in multiprocessing.active_children() if p.pid is not None)


def hot_lines(pid: int, *, seconds: float = 2.0) -> Look:
    """Count at which lines a worker was, looking a hundred times a second (`py-spy record`)."""
    with tempfile.TemporaryDirectory(prefix="py-spy-") as folder:
        file = Path(folder) / "samples.txt"
        # py-spy takes whole seconds only
        options = ["--duration", str(max(1, round(seconds))), "--idle", "--threads"]
        options += ["--format", "raw", "--output", str(file)]
        note = _py_spy(["record", "--pid", str(pid), *options])
        shown = _recorded("py_spy_record.txt") if note else _hottest(file.read_text("utf-8"))
    return Look(
        f"py-spy record --pid {pid}",
        shown,
        "It sees at which lines the main thread of a process spends its time, waiting included.",
        "It misses whether a line computes or waits, and every other process.",
        note,
    )


def cpu_use(*, seconds: float = 1.0) -> Look:
    """Show how busy this process and each of its workers keep a core, as htop does."""
    first, start = _of_each(_cpu_s), time.perf_counter()
    time.sleep(seconds)
    took, rows = time.perf_counter() - start, ["process      pid   core busy"]
    for (name, pid), now in _of_each(_cpu_s).items():
        if (name, pid) in first:
            rows.append(f"{name:9} {pid:6} {100 * (now - first[name, pid]) / took:8.0f} %")
    return Look(
        "Processors, as htop shows them",
        "\n".join(rows),
        "It sees which processes compute and which wait.",
        "It misses what they compute, and for what they wait: disk, queue or GPU look the same.",
    )


def disk_use(*, seconds: float = 1.0) -> Look:
    """Show what this process and each of its workers read and wrote, as iotop does."""
    tool, sees = "Disk, as iotop shows it", "It sees who reads: bytes asked for, and those fetched."
    misses = "It misses how long each read took, and bytes that came through a memory map."
    if not hasattr(psutil.Process, "io_counters") or not sys.platform.startswith("linux"):
        note = "Only Linux counts bytes for each process in /proc/PID/io; this was recorded there."
        return Look(tool, _recorded("disk_use.txt"), sees, misses, note)
    first = _of_each(_io)
    time.sleep(seconds)
    rows = ["process      pid   asked for   from disk     written"]
    for (name, pid), now in _of_each(_io).items():
        if (name, pid) in first:
            mb = [(b - a) / 1e6 for a, b in zip(first[name, pid], now, strict=True)]
            rows.append(f"{name:9} {pid:6}" + "".join(f"{value:9.2f} MB" for value in mb))
    return Look(tool, "\n".join(rows), sees, misses)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _io(process: psutil.Process) -> tuple[int, int, int]:
    counted = process.io_counters()
    return counted.read_chars, counted.read_bytes, counted.write_bytes


def _of_each(read: Callable[[psutil.Process], T]) -> dict[tuple[str, int], T]:
    """Read a figure of this process and of each worker that still runs."""
    workers = {f"worker {n}": pid for n, pid in enumerate(worker_pids())}
    found = {}
    for name, pid in {"main": os.getpid(), **workers}.items():
        with suppress(psutil.Error):
            found[name, pid] = read(psutil.Process(pid))
    return found


def _py_spy(arguments: list[str]) -> str:
    """Run py-spy; return why a recording is to be shown in its place, or an empty string."""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    command = [program or "py-spy", *arguments]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=_LONGEST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = type(error).__name__
    else:
        if not run.returncode:
            return ""
        reason = (run.stderr.strip() or "no reason given").splitlines()[0]
    return (
        f"This system does not let py-spy look into another process ({reason}); what follows was "
        f"recorded elsewhere. `sudo py-spy {' '.join(arguments[:3])}` in a terminal may show yours."
    )


def _recorded(name: str) -> str:
    return recording(name).read_text("utf-8").strip()


def _hottest(raw: str) -> str:
    """Return the lines in which most samples of the main thread ended.

    Raw output has lines `thread (0x7F): "MainThread";frame;frame;frame count`.
    """
    counted: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if "MainThread" in thread and frames:
            counted[frames[-1].replace(".<locals>", "")] += int(count)
    whole = sum(counted.values())
    rows = [f"{100 * n / whole:4.0f} %  {at}" for at, n in counted.most_common(_MOST_LINES)]
    return "\n".join(rows) or "No sample was taken; look for longer."
