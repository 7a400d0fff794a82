"""Inspect a running loader from outside, like py-spy, htop and iotop. All results are text."""

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
from pathlib import Path

import psutil

from course_utils.paths import recording

_LONGEST_S = 30.0  # time limit for py-spy
_MOST_LINES = 8


def worker_pids() -> list[int]:
    """Return the running child processes, which are the workers of the loaders."""
    return sorted(p.pid for p in multiprocessing.active_children() if p.pid is not None)


def hot_lines(pid: int) -> str:
    """Sample the current line of a worker for a second with `py-spy record`.

    If the system does not let py-spy inspect another process, return the reason and a recording.
    """
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    with tempfile.TemporaryDirectory(prefix="py-spy-") as folder:
        file = Path(folder, "samples.txt")
        options = ["--duration", "1", "--idle", "--threads", "--format", "raw"]
        command = [program or "py-spy", "record", "--pid", str(pid), *options, "-o", str(file)]
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=True)
            return _hottest(file.read_text("utf-8"))
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "stderr", "") or type(error).__name__).strip().splitlines()[0]
    return (
        f"This system does not let py-spy inspect another process ({reason}). This is a recording. "
        f"In a terminal, `sudo py-spy record --pid {pid}` may show yours.\n"
        + recording("py_spy_record.txt").read_text("utf-8")
    )


def cpu_use(*, seconds: float = 1.0) -> str:
    """Return the CPU use of this process and of each worker, as htop shows it."""
    start = time.perf_counter()
    used = _of_each(lambda process: process.cpu_times()[:2], seconds)  # user and system time
    took = time.perf_counter() - start
    rows = [f"{who} {100 * sum(cpu_s) / took:8.0f} %" for who, cpu_s in used.items()]
    return "\n".join(["process      pid   core busy", *rows])


def disk_use(*, seconds: float = 1.0) -> str:
    """Return the bytes that this process and each worker read and wrote, as iotop shows them.

    Only Linux counts them per process (/proc/PID/io). Elsewhere, return a recording.
    """
    if not sys.platform.startswith("linux"):
        return "A recording from Linux:\n" + recording("disk_use.txt").read_text("utf-8")
    moved = _of_each(_io, seconds)
    rows = [who + "".join(f"{b / 1e6:9.2f} MB" for b in n) for who, n in moved.items()]
    return "\n".join(["process      pid   asked for   from disk     written", *rows])


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
    return "\n".join(rows) or "There are no samples. Run the cell again."
