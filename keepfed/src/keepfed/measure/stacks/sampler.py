"""Sample the stack of one thread 50 times a second, and add up the time of each line.

A thread of the same process takes the samples, and only while it holds the GIL. Work that keeps the
GIL, such as `x in a_list`, delays it until a later line gives the GIL away. So a sample is exact
only in a wait. `OutsideSampler` needs no GIL, and replaces the samples where it is allowed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from multiprocessing.util import Finalize
from pathlib import Path
from types import FrameType

from keepfed.files import replace_file
from keepfed.measure.stacks.place import Frame, StackRow, find_row, is_own

STACKS = "stacks-"  # beginning of the names of the files
EVERY_S = 0.02  # s between two samples
SELDOM_S = 0.1  # the same if `OutsideSampler` is there, because each sample delays the thread
SWITCH_S = 0.0005  # s after which the thread asks for the GIL; the default is 0.005
WRITE_EVERY_S = 1.0  # s between two writes of the file
LONGEST_S = 1.0  # s that one sample may count for; a stopped process has longer gaps
WAITING = 0.5  # share of the time needing a core, below which a thread mostly waits
SET_PTRACER = 0x59616D61  # option of prctl that lets another process read this one


class StackSampler:
    """Samples the calling thread between `start` and `stop`, and writes the sums to a file."""

    def __init__(self, folder: Path, name: str, reader: int = 0):
        """Prepare a sampler of this process, whose file in `folder` begins with `name`.

        `reader` is the process whose children sample this one from outside, 0 for none.
        """
        self.folder, self.name, self.reader = folder, name, reader
        self._file = folder / f"{STACKS}{name}-{os.getpid()}.json"
        self._spent: dict[StackRow, float] = defaultdict(float)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StackSampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start to sample the calling thread."""
        if self._thread is not None:
            return
        allow_reading(self.reader)
        self._write()  # tells `OutsideSampler` that this process has begun
        self._stop = threading.Event()
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_S, self._interval))
        thread = threading.get_ident(), threading.get_native_id()
        self._thread = threading.Thread(target=self._run, args=thread, daemon=True)
        self._thread.start()
        # A thread that outlives the interpreter can abort the process, if it was freeing a tensor.
        self._at_exit = Finalize(None, self.stop, exitpriority=0)

    def stop(self) -> None:
        """Stop sampling, and write the file. Call this before the process forks."""
        if self._thread is not None:
            self._at_exit.cancel()
            self._stop.set()
            self._thread.join()
            self._thread = None
            sys.setswitchinterval(self._interval)
            self._write()

    def _run(self, thread: int, native: int) -> None:
        with suppress(Exception):  # an error costs the lines, never the training
            self._sample(thread, native)

    def _sample(self, thread: int, native: int) -> None:
        before = written = time.perf_counter()
        needed_s, _ = _state(native)
        while not self._stop.wait(SELDOM_S if self.reader else EVERY_S):
            frame, now, last_s = sys._current_frames().get(thread), time.perf_counter(), needed_s
            needed_s, sleeps = _state(native)
            waits = sleeps and needed_s - last_s < WAITING * (now - before)
            if frame is not None and (row := _row(frame, waits)):
                self._spent[row] += min(now - before, LONGEST_S)
            before = now
            if now - written > WRITE_EVERY_S:
                self._write()
                written = now

    def _write(self) -> None:
        rows = [row._replace(seconds=seconds) for row, seconds in [*self._spent.items()]]
        files = {getattr(module, "__file__", None) or "<" for module in [*sys.modules.values()]}
        try:
            replace_file(self._file, json.dumps({"files": [*filter(is_own, files)], "rows": rows}))
        except OSError:  # a full disk costs the evidence, never the training
            self._stop.set()


def _row(frame: FrameType | None, waits: bool) -> StackRow | None:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    running = [(frame.f_code, frame.f_lineno or 0) for frame in frames]
    stack = [Frame(code.co_filename, code.co_qualname, line) for code, line in running]
    if (row := find_row(stack)) is None:
        return None
    row = row._replace(waits=waits, is_exact=waits)
    code, last_i = running[row.depth][0], max(frames[row.depth].f_lasti, 0)
    _, line, begin, end = [*code.co_positions()][last_i // 2]
    return row._replace(call=(begin or 0, end or 0)) if line == row.line else row


def _state(thread: int) -> tuple[float, bool]:
    """Return the s in which a thread ran or needed a core, and whether it sleeps. Linux tells."""
    folder = Path("/proc/self/task", str(thread))
    try:
        ran, needed, _ = (folder / "schedstat").read_text("ascii").split()
        stat = (folder / "stat").read_text("utf-8", "replace")
    except (OSError, ValueError):
        return 0.0, False
    return (int(ran) + int(needed)) / 1e9, stat.rpartition(") ")[2].startswith(("S", "D"))


def allow_reading(process: int) -> None:
    """Let the children of a process read the memory of this one, where Linux asks for that."""
    if process and sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SET_PTRACER, process, 0, 0, 0)
