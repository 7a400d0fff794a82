"""Inspect a running loader from outside, like py-spy, htop and iotop, with their limits."""

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

_LONGEST_S = 30.0  # time limit for py-spy
_MOST_LINES = 8


@dataclass(frozen=True, repr=False)
class ProcessLook:
    """The output of one tool, and what it can and cannot see."""

    tool: str
    shows: str  # plain text, as a terminal would show it
    sees: str
    misses: str
    note: str = ""  # why the tool does not work here, and what recording is shown instead

    def __repr__(self) -> str:
        """Return the output and the sentences as plain text."""
        return "\n".join(filter(None, (self.note, self.shows, self.sees, self.misses)))

    def _repr_html_(self) -> str:
        return card("plain", self.tool, self.note, self.sees, self.misses, body=block(self.shows))


def worker_pids() -> list[int]:
    """Return the running child processes, which are the workers of the loaders."""
    return sorted(p.pid for p in multiprocessing.active_children() if p.pid is not None)


def hot_lines(pid: int, *, seconds: float = 2.0) -> ProcessLook:
    """Sample the current line of a worker 100 times per second, with `py-spy record`."""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    # py-spy accepts only integers
    options = ["--duration", str(max(1, round(seconds))), "--idle", "--threads", "--format", "raw"]
    with tempfile.TemporaryDirectory(prefix="py-spy-") as folder:
        file = Path(folder, "samples.txt")
        command = [
            program or "py-spy",
            "record",
            "--pid",
            str(pid),
            *options,
            "--output",
            str(file),
        ]
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=True)
            note, shown = "", _hottest(file.read_text("utf-8"))
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "stderr", "") or type(error).__name__).strip().splitlines()[0]
            note = (
                f"This system does not let py-spy inspect another process ({reason}). The output "
                f"below is a recording. In a terminal, `sudo py-spy record --pid {pid}` may show "
                "yours."
            )
            shown = recording("py_spy_record.txt").read_text("utf-8").strip()
    return ProcessLook(
        f"py-spy record --pid {pid}",
        shown,
        "It shows which lines take the time of a process's main thread, including waiting.",
        "It does not show whether a line computes or waits, and it shows only one process.",
        note,
    )


def cpu_use(*, seconds: float = 1.0) -> ProcessLook:
    """Show the CPU use of this process and of each worker, as htop does."""
    start = time.perf_counter()
    used = _of_each(lambda process: process.cpu_times()[:2], seconds)  # user and system time
    took = time.perf_counter() - start
    rows = [f"{who} {100 * sum(cpu_s) / took:8.0f} %" for who, cpu_s in used.items()]
    return ProcessLook(
        "CPU use, as htop shows it",
        "\n".join(["process      pid   core busy", *rows]),
        "It shows which processes compute and which wait.",
        "It does not show what they compute. Waiting for disk, queue or GPU looks the same.",
    )


def disk_use(*, seconds: float = 1.0) -> ProcessLook:
    """Show the bytes that this process and each worker read and wrote, as iotop does."""
    if sys.platform.startswith("linux"):
        moved, note = _of_each(_io, seconds), ""
        rows = [who + "".join(f"{b / 1e6:9.2f} MB" for b in n) for who, n in moved.items()]
        shown = "\n".join(["process      pid   asked for   from disk     written", *rows])
    else:
        note = "Only Linux counts bytes per process (/proc/PID/io). This is a recording from Linux."
        shown = recording("disk_use.txt").read_text("utf-8").strip()
    return ProcessLook(
        "Disk use, as iotop shows it",
        shown,
        "It shows requested and fetched bytes per process.",
        "It does not show the time of each read, or bytes that are read through a memory map.",
        note,
    )


def _io(process: psutil.Process) -> Sequence[float]:
    counted = process.io_counters()
    return counted.read_chars, counted.read_bytes, counted.write_bytes


def _of_each(
    read: Callable[[psutil.Process], Sequence[float]], seconds: float
) -> dict[str, list[float]]:
    """Return the increase of the counters of this process and of each worker in `seconds`."""
    workers = {f"worker {n}": pid for n, pid in enumerate(worker_pids())}
    looks: list[dict[str, Sequence[float]]] = []
    for wait_s in (0, seconds):
        time.sleep(wait_s)
        looks.append({})
        for name, pid in {"main": os.getpid(), **workers}.items():
            with suppress(psutil.Error):  # the process has ended
                looks[-1][f"{name:9} {pid:6}"] = read(psutil.Process(pid))
    first, then = looks
    return {
        who: [b - a for a, b in zip(first[who], figures, strict=True)]
        for who, figures in then.items()
    }


def _hottest(raw: str) -> str:
    """Return the lines with the most samples of the main thread.

    Each line of `raw` is `thread (0x7F): "MainThread";frame;frame;frame count`.
    """
    counted: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if "MainThread" in thread and frames:
            counted[frames[-1].replace(".<locals>", "")] += int(count)
    whole = sum(counted.values())
    rows = [f"{100 * n / whole:4.0f} %  {at}" for at, n in counted.most_common(_MOST_LINES)]
    return "\n".join(rows) or "There are no samples. Increase `seconds`."
