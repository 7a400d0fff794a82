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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from course_utils.paths import recording
from course_utils.teaching.notebook.cards import block, card

_LONGEST_S = 30.0  # for py-spy to look
_MOST_LINES = 8


@dataclass(frozen=True, repr=False)
class ProcessLook:
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


def hot_lines(pid: int, *, seconds: float = 2.0) -> ProcessLook:
    """Count at which lines a worker was, looking a hundred times a second (`py-spy record`)."""
    with tempfile.TemporaryDirectory(prefix="py-spy-") as folder:
        file = Path(folder) / "samples.txt"
        # py-spy takes whole seconds only
        options = ["--duration", str(max(1, round(seconds))), "--idle", "--threads"]
        options += ["--format", "raw", "--output", str(file)]
        note = _py_spy(["record", "--pid", str(pid), *options])
        shown = _recorded("py_spy_record.txt") if note else _hottest(file.read_text("utf-8"))
    return ProcessLook(
        f"py-spy record --pid {pid}",
        shown,
        "It sees at which lines the main thread of a process spends its time, waiting included.",
        "It misses whether a line computes or waits, and every other process.",
        note,
    )


def cpu_use(*, seconds: float = 1.0) -> ProcessLook:
    """Show how busy this process and each of its workers keep a core, as htop does."""
    start = time.perf_counter()
    used = _of_each(lambda process: process.cpu_times()[:2], seconds)  # as user and in the system
    took = time.perf_counter() - start
    rows = [f"{who} {100 * sum(cpu_s) / took:8.0f} %" for who, cpu_s in used.items()]
    return ProcessLook(
        "Processors, as htop shows them",
        "\n".join(["process      pid   core busy", *rows]),
        "It sees which processes compute and which wait.",
        "It misses what they compute, and for what they wait: disk, queue or GPU look the same.",
    )


def disk_use(*, seconds: float = 1.0) -> ProcessLook:
    """Show what this process and each of its workers read and wrote, as iotop does."""
    tool, sees = "Disk, as iotop shows it", "It sees who reads: bytes asked for, and those fetched."
    misses = "It misses how long each read took, and bytes that came through a memory map."
    if not hasattr(psutil.Process, "io_counters") or not sys.platform.startswith("linux"):
        note = "Only Linux counts bytes for each process in /proc/PID/io; this was recorded there."
        return ProcessLook(tool, _recorded("disk_use.txt"), sees, misses, note)
    moved = _of_each(_io, seconds)
    rows = [who + "".join(f"{b / 1e6:9.2f} MB" for b in counts) for who, counts in moved.items()]
    title = "process      pid   asked for   from disk     written"
    return ProcessLook(tool, "\n".join([title, *rows]), sees, misses)


def _io(process: psutil.Process) -> Sequence[float]:
    counted = process.io_counters()
    return counted.read_chars, counted.read_bytes, counted.write_bytes


def _of_each(
    read: Callable[[psutil.Process], Sequence[float]], seconds: float
) -> dict[str, list[float]]:
    """Return by how much the figures of this process and of each worker grow in that time."""
    workers = {f"worker {n}": pid for n, pid in enumerate(worker_pids())}
    looks: list[dict[str, Sequence[float]]] = []
    for wait_s in (0, seconds):
        time.sleep(wait_s)
        looks.append({})
        for name, pid in {"main": os.getpid(), **workers}.items():
            with suppress(psutil.Error):  # it has ended
                looks[-1][f"{name:9} {pid:6}"] = read(psutil.Process(pid))
    first, then = looks
    return {
        who: [b - a for a, b in zip(first[who], figures, strict=True)]
        for who, figures in then.items()
    }


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
