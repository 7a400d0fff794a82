"""Look at a running loader from outside, as py-spy, htop and iotop do, and say what that misses."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from course_utils.errors import CourseError
from course_utils.paths import recording
from course_utils.teaching.notebook.cards import block, card

T = TypeVar("T")

_LONGEST_S = 30.0  # for py-spy to look once
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


_DUMP = (
    "It sees the line of Python each thread is at now, in a process not prepared for it.",
    "It misses how long the thread has been there, and what runs below Python.",
)
_RECORD = (
    "It sees at which lines the main thread of a process spends its time, waiting included.",
    "It misses whether a line computes or waits, and every other process.",
)


def worker_pids() -> list[int]:
    """Return the processes that this one started and that run now: the workers of its loaders."""
    return sorted(p.pid for p in multiprocessing.active_children() if p.pid is not None)


def during(work: Callable[[], object], look: Callable[[], Look], *, after: float = 0.5) -> Look:
    """Run `work` here and have another thread look `after` seconds later, while it still runs.

    A look at this very process would else find it busy with looking.

    Raises:
        CourseError: `work` was done before the look began.
    """
    done = threading.Event()

    def wait_and_look() -> Look | None:
        return None if done.wait(after) else look()

    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(wait_and_look)
        try:
            work()
        finally:
            done.set()
    if (found := seen.result()) is None:
        raise CourseError(f"The work took less than {after:g} s; give it more, or look earlier.")
    return found


def stacks(pid: int | None = None) -> Look:
    """Show the line of Python at which each thread of a process is now (`py-spy dump`).

    Args:
        pid: a worker's, as `worker_pids()` lists them; None: this very process.
    """
    pid = pid or os.getpid()
    recorded = "py_spy_worker.txt" if pid != os.getpid() else "py_spy_main.txt"
    shown, note = _py_spy(["dump", "--pid", str(pid)], recorded)
    return Look(f"py-spy dump --pid {pid}", shown, *_DUMP, note)


def hot_lines(pid: int | None = None, *, seconds: float = 2.0) -> Look:
    """Count at which lines a process was, looking a hundred times a second (`py-spy record`)."""
    pid = pid or os.getpid()
    with tempfile.TemporaryDirectory(prefix="py-spy-") as folder:
        file = Path(folder) / "samples.txt"
        # py-spy takes whole seconds only
        options = ["--duration", str(max(1, round(seconds))), "--idle", "--threads"]
        options += ["--format", "raw", "--output", str(file)]
        shown, note = _py_spy(["record", "--pid", str(pid), *options], "py_spy_record.txt")
        if not note:
            shown = _hottest(file.read_text("utf-8"))
    return Look(f"py-spy record --pid {pid}", shown, *_RECORD, note)


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
        return Look(tool, recording("disk_use.txt").read_text("utf-8"), sees, misses, note)
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


def _py_spy(arguments: list[str], recorded: str) -> tuple[str, str]:
    """Return what py-spy prints and an empty note, or a recording and why it is shown."""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    try:
        run = subprocess.run(
            [program or "py-spy", *arguments],
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        trouble = run.stderr.strip().splitlines()[:1] if run.returncode else []
        if not run.returncode:
            return run.stdout.strip(), ""
    except (OSError, subprocess.TimeoutExpired) as error:
        trouble = [type(error).__name__]
    reason = "; ".join(trouble) or "no reason given"
    note = (
        f"This system does not let py-spy look into another process ({reason}); what follows was "
        f"recorded elsewhere. `sudo py-spy {' '.join(arguments[:3])}` in a terminal may show yours."
    )
    return recording(recorded).read_text("utf-8").strip(), note


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
