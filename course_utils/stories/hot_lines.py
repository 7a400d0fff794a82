"""Sample a running worker from outside with py-spy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from course_utils.paths import recording

_LONGEST_S = 30.0  # time limit for py-spy
_MOST_LINES = 8


def hot_lines(pid: int) -> str:
    """Sample the current line of a process for a second with `py-spy record`.

    If the system does not let py-spy inspect another process, return the reason and a recording.
    """
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    with tempfile.TemporaryDirectory(prefix="py-spy-") as folder:
        file = Path(folder, "samples.txt")
        options = ["--duration", "1", "--idle", "--threads", "--format", "raw"]
        command = [program or "py-spy", "record", "--pid", str(pid), *options, "-o", str(file)]
        try:
            subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_S, check=True)
            return hottest(file.read_text("utf-8"))
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "stderr", "") or type(error).__name__).strip().splitlines()[0]
    return (
        f"This system does not let py-spy inspect another process ({reason}). This is a recording. "
        f"In a terminal, `sudo py-spy record --pid {pid}` may show yours.\n"
        + recording("py_spy_record.txt").read_text("utf-8")
    )


def hottest(raw: str) -> str:
    """Return the lines with the most samples of the main thread.

    Each line of `raw` is `thread (0x7F): "MainThread";frame;frame;frame count`.
    """
    counted: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        thread, *frames = stack.split(";")
        if "MainThread" in thread and frames:
            counted[frames[-1].replace(".<locals>", "")] += int(count)
    rows = [
        f"{100 * n / counted.total():4.0f} %  {at}" for at, n in counted.most_common(_MOST_LINES)
    ]
    return "\n".join(rows) or "There are no samples. Run the cell again."
