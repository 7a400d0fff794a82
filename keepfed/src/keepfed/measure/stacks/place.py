"""Find the user's line in a stack, and the part of the loop that it belongs to."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple

PARTS = {  # functions of the hook and of torch that call a part of the loader
    "Hook.follow.<locals>.notifying_fetch": "fetch",
    "StepTimer.time_next": "fetch",  # of batches without a `DataLoader`
    "Hook.collate": "collate",
    "TimedSampler.__next__": "sampler",
    "_BaseDataLoaderIter._next_index": "sampler",
}
_STDLIB = sysconfig.get_path("stdlib") + os.sep
# A console script, such as torchrun, calls the library that loops.
_SCRIPTS = tuple(
    sysconfig.get_path("scripts", scheme) + os.sep
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user"))
)
_OURS = str(Path(__file__).resolve().parents[2]) + os.sep  # the package keepfed
_LOADER = re.compile(r"[/\\](torch[/\\]utils[/\\]data|torchdata[/\\]stateful_dataloader)[/\\]")


class Frame(NamedTuple):
    """A function that was running."""

    file: str
    function: str  # qualified name
    line: int


class StackRow(NamedTuple):
    """The time of one line of code."""

    part: str  # "fetch", "collate", "sampler" or "loop"
    file: str
    function: str
    line: int
    depth: int  # frames that the line had called
    library: str  # package of the innermost frame, "" if this is the line's own
    inside: tuple[str, ...]  # classes and functions that the line called, innermost first
    call: tuple[int, int] | None = None  # columns of the call in bytes, None if unknown
    waits: bool = False  # whether it needed no core
    is_exact: bool = True  # whether no line before it can have taken the time
    seconds: float = 0.0


def find_row(stack: Sequence[Frame]) -> StackRow | None:
    """Return the user's line in a stack, the innermost frame first, or None if nothing is loaded.

    This is the innermost line outside of libraries. In a part of the loader it must be inside of
    that part. If none is, the result is the outermost line inside, which belongs to a library.
    """
    part, end = "loop", len(stack)
    working = end  # position of the innermost frame of this package
    for depth, frame in enumerate(stack):
        of_loader = _LOADER.search(frame.file)
        if (of_loader or _is_ours(frame.file)) and frame.function in PARTS:
            part, end = PARTS[frame.function], depth
            break
        if of_loader and frame.file.endswith("dataloader.py"):
            return None  # the main process waits for a worker, or starts them
        if _is_ours(frame.file):
            end = working = min(working, depth)
    depths = [depth for depth in range(end) if not _LOADER.search(stack[depth].file)]
    own = next((depth for depth in depths if is_own(stack[depth].file)), None)
    in_thread = own is None or stack[-1].function == "Thread._bootstrap"
    if not depths or working < (end if own is None else own) or (part == "loop" and in_thread):
        return None
    depth = depths[-1] if own is None else own
    names = (frame.function.partition(".")[0] for frame in stack[: depth + (own is None)])
    library = package(stack[0].file) if depth else ""
    return StackRow(part, *stack[depth], depth, library, tuple(names))


def is_ours(frame: FrameType) -> bool:
    """Return whether a frame runs code of this package."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "keepfed"


def _is_ours(file: str) -> bool:
    return file.lstrip("<").startswith(_OURS)  # in a watched program, "<" is before the name


def is_own(file: str) -> bool:
    """Return whether a file belongs to the user, not to Python or an installed package."""
    return not (file.startswith(("<", *_SCRIPTS)) or _is_ours(file) or package(file))


def package(file: str) -> str:
    """Return the name of the installed package or module of Python of a file, "" if none."""
    for folder in (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", _STDLIB):
        if folder in file:
            return file.rpartition(folder)[2].split(os.sep)[0].removesuffix(".py")
    return ""
