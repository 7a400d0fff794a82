"""Sample the stack of one thread every 20 milliseconds, and add up the time of each line.

A thread of the same process takes the samples. Native code has no frames of its own, so its time
belongs to the Python line that called it. A sample counts for the time since the sample before,
because a call into native code can delay the sampling thread.

The thread can sample only while it holds the GIL. It asks for the GIL after the switch interval, so
a long interval would charge native code that holds the GIL to the next call that releases it.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import threading
import time
from collections import defaultdict
from multiprocessing.util import Finalize
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from keepfed.files import replace_file

STACKS = "stacks-"  # beginning of the names of the files
EVERY_S = 0.02  # s between two samples
SWITCH_S = 0.0005  # s after which the thread asks for the GIL; the default is 0.005
WRITE_EVERY_S = 1.0  # s between two writes of the file
LONGEST_S = 1.0  # s that one sample may count for; a stopped process has longer gaps

_STDLIB = sysconfig.get_path("stdlib") + os.sep
_OURS = str(Path(__file__).resolve().parents[2]) + os.sep  # the package keepfed


class Place(NamedTuple):
    """One instruction, and the kind of code that it had called when the samples were taken."""

    part: str  # "fetch", "collate", "sampler" or "loop"
    code: CodeType
    instruction: int  # byte offset of the instruction in `code`
    library: str  # top-level package of the innermost frame, "" if this is the line's own


class StackSampler:
    """Samples the calling thread between `start` and `stop`, and writes the sums to a file."""

    def __init__(self, folder: Path, name: str):
        """Prepare a sampler of this process, whose file in `folder` begins with `name`."""
        self.folder, self.name = folder, name
        self._file = folder / f"{STACKS}{name}-{os.getpid()}.json"
        self._spent: dict[Place, float] = defaultdict(float)
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
        self._stop = threading.Event()
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_S, self._interval))
        thread = threading.current_thread()
        self._thread = threading.Thread(target=self._run, args=(thread.ident,), daemon=True)
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

    def _run(self, thread: int) -> None:
        before = written = time.perf_counter()
        while not self._stop.wait(EVERY_S):
            now = time.perf_counter()
            frame = sys._current_frames().get(thread)
            place = _place(frame) if frame is not None else None
            if place is not None:
                self._spent[place] += min(now - before, LONGEST_S)
            before = now
            if now - written > WRITE_EVERY_S:
                self._write()
                written = now

    def _write(self) -> None:
        rows = [
            {
                "part": place.part,
                "file": place.code.co_filename,
                "function": getattr(place.code, "co_qualname", place.code.co_name),
                "position": _position(place.code, place.instruction),
                "library": place.library,
                "seconds": seconds,
            }
            for place, seconds in self._spent.items()
        ]
        try:
            replace_file(self._file, json.dumps(rows))
        except OSError:  # a full disk costs the evidence, never the training
            self._stop.set()


def _place(frame: FrameType) -> Place | None:
    """Return the user's instruction that a stack is executing, or None if nothing is loaded.

    This is the innermost frame outside of libraries. In a part of the loader, the frame must be
    inside of that part. If no frame is, the result is the outermost frame of the part.
    """
    innermost, own, inside = frame, None, None
    part, one = "loop", frame
    while True:
        module = one.f_globals.get("__name__")
        if module == "torch.utils.data._utils.fetch":
            part = "fetch"
        elif module == "torch.utils.data.dataloader":
            if one.f_code.co_name != "_next_index":
                return None  # the main process waits for a worker, or starts them
            part = "sampler"
        elif is_ours(one):
            if one.f_code.co_name == "collate":
                part = "collate"
            elif module != "keepfed.measure.hook.timed_sampler":  # which calls the sampler
                break
        elif own is None and is_own(one.f_code.co_filename):
            own = one
        if part != "loop" or one.f_back is None:
            break
        inside = inside if is_ours(one) else one
        one = one.f_back
    chosen = own or inside
    if chosen is None or (own is None and part == "loop"):
        return None
    library = "" if chosen is innermost else innermost.f_globals.get("__name__") or ""
    return Place(part, chosen.f_code, max(chosen.f_lasti, 0), library.partition(".")[0])


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "keepfed"


def is_own(name: str) -> bool:
    """Return whether a file belongs to the user, not to Python or an installed package."""
    return not (
        name.startswith((_STDLIB, _OURS, "<"))
        or f"{os.sep}site-packages{os.sep}" in name
        or f"{os.sep}dist-packages{os.sep}" in name
    )


def _position(code: CodeType, instruction: int) -> tuple[int, int, int, int]:
    """Return (line, last line, column, last column) of an instruction, columns -1 if unknown."""
    for number, found in enumerate(code.co_positions()):
        if number == instruction // 2:
            line, end, first, last = found
            if line is not None:
                unknown = first is None or last is None or end != line
                return line, line, *((-1, -1) if unknown else (first, last))  # type: ignore[return-value]
    return code.co_firstlineno, code.co_firstlineno, -1, -1
