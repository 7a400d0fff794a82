"""Run a demonstration that may crash in a subprocess."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from course_utils.hardware.machine import modules_of_server
from course_utils.teaching.notebook.cards import block, card
from course_utils.teaching.notebook.start import PRELOAD

_LONGEST_OUTPUT = 20_000  # characters; the end is kept, because it explains the error
_LOOK_EVERY_S = 0.05
_LOOK_SHARE = 0.1  # largest share of a core, because reading memory use is expensive


@dataclass(frozen=True)
class Demo:
    """Result and output of a demonstration."""

    ending: str
    returncode: int  # exit status of the process; negative: the signal that killed it
    seconds: float
    peak_mb: float  # peak memory of the process and its children
    output: str

    @property
    def sentence(self) -> str:
        """The result as a sentence."""
        return f"{self.ending}. It took {self.seconds:.1f} s and {self.peak_mb:,.0f} MB of memory."

    def __repr__(self) -> str:
        """Return the result and the output."""
        return f"{self.sentence}\n{self.output}"

    def _repr_html_(self) -> str:
        title = "In a separate process"
        return card("plain", title, self.sentence, body=block(self.output) if self.output else "")


def run_demo(
    program: str, *, seconds: float = 20, memory_mb: float = 2000, fresh: bool = False
) -> Demo:
    """Run `program` in a subprocess with limits on time and memory, and leave no process behind.

    Args:
        program: Python source, run like a script. If it starts workers, it needs
            `if __name__ == "__main__":`, like any script.
        seconds: Time limit, after which the program is stopped.
        memory_mb: Memory limit of the program and its children. Infinity disables the check.
        fresh: Start a new Python, which imports torch itself and shares nothing with this one.
    """
    with tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True) as folder:
        script, output = Path(folder) / "demo.py", Path(folder) / "output.txt"
        script.write_text(textwrap.dedent(program), "utf-8")
        output.touch()
        process = _NewPython(script, output) if fresh else _loaded(script, output)
        watch = _Monitor(process)
        try:
            stopped = watch.wait(seconds, memory_mb)
        finally:
            watch.kill_all()
        text = output.read_text("utf-8", errors="replace").replace(folder + os.sep, "").rstrip()
    returncode = process.exitcode or 0
    ending = stopped or _ending(returncode)
    if len(text) > _LONGEST_OUTPUT:
        text = "...\n" + text[-_LONGEST_OUTPUT:]
    return Demo(ending, returncode, watch.seconds, watch.peak_mb, text)


class _NewPython(subprocess.Popen[bytes]):
    """A script in a new Python process, with the interface of `Process`."""

    def __init__(self, script: Path, output: Path):
        with output.open("wb") as sink:
            super().__init__(
                [sys.executable, str(script)],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # makes its children killable as a group
            )

    @property
    def exitcode(self) -> int | None:
        return self.poll()

    def join(self, timeout: float | None = None) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(timeout)


def _loaded(script: Path, output: Path) -> BaseProcess:
    """Start a script in a process that already has torch loaded."""
    process: BaseProcess = loaded_context().Process(target=_run, args=(script, output))
    process.start()
    return process


def loaded_context() -> Any:
    """Return a context whose processes have torch loaded, because importing it takes seconds."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    if modules_of_server() is None:  # the forkserver is not running yet
        multiprocessing.set_forkserver_preload(list(PRELOAD))
    return multiprocessing.get_context("forkserver")


def _run(script: Path, output: Path) -> None:
    """Run a script as Python's command line does, with its output in a file."""
    if hasattr(os, "setsid"):
        os.setsid()  # makes its children killable as a group
    # Use a file, because an orphan that keeps a pipe open would block the kernel.
    sink = os.open(output, os.O_WRONLY | os.O_APPEND)
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        os.dup2(sink, number)
        stream.reconfigure(encoding="utf-8", write_through=True)  # type: ignore[union-attr]
    main = sys.modules["__main__"] = ModuleType("__main__")
    main.__file__ = str(script)
    try:
        exec(compile(script.read_text("utf-8"), script, "exec"), vars(main))
    except Exception as error:
        place = error.__traceback__ and error.__traceback__.tb_next  # skips this function
        sys.excepthook(type(error), error, place)
        sys.exit(1)


class _Monitor:
    """Monitor of a process and all of its descendants."""

    def __init__(self, process: BaseProcess | _NewPython):
        self.process = process
        self.family: set[psutil.Process] = set()
        self.peak_mb = self.seconds = 0.0

    def wait(self, seconds: float, memory_mb: float) -> str:
        """Wait for the end, and return why the process must be stopped, or an empty string."""
        start = time.monotonic()
        while self.process.exitcode is None:
            begun = time.monotonic()
            if memory_mb < math.inf:
                self.update_family()
                self.peak_mb = max(self.peak_mb, sum(map(_memory_mb, self.family)))
            if self.peak_mb > memory_mb:
                return f"Stopped, because it used more than {memory_mb:,.0f} MB of memory"
            if self.seconds > seconds:
                return f"Stopped after {seconds:g} s, because it was still running"
            looked_s = time.monotonic() - begun
            self.process.join(max(_LOOK_EVERY_S, looked_s / _LOOK_SHARE))
            self.seconds = time.monotonic() - start
        return ""

    def update_family(self) -> None:
        with suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            self.family.update([root, *root.children(recursive=True)])

    def kill_all(self) -> None:
        """Kill the process and its descendants, including orphans."""
        self.update_family()
        if sys.platform != "win32" and self.process.pid:
            self.family.update(_kill_group(self.process.pid))
        for member in self.family:
            with suppress(psutil.Error):
                member.kill()
        self.process.kill()
        self.process.join()
        psutil.wait_procs(self.family, timeout=0.5)


def _memory_mb(process: psutil.Process) -> float:
    """Return the memory of a process in MB; shared pages are divided if the system reports it."""
    try:
        told = process.memory_full_info()
    except (psutil.Error, ProcessLookupError):
        return 0.0  # no limit if the system does not report it
    return float(getattr(told, "pss", told.uss)) / 1e6


def _kill_group(group: int) -> list[psutil.Process]:
    """Kill a process group, and return its members that still exist."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    members = []
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.getpgid(process.pid) == group:
                members.append(process)
    return members


def _ending(returncode: int) -> str:
    if returncode == 0:
        return "Finished normally"
    if returncode < 0:
        return f"Killed by {signal.Signals(-returncode).name}"
    return f"Ended with an error (exit status {returncode})"
