"""Let hanging tests fail, and print the stacks of all their processes.

Each phase of a test (setup, call, teardown) may take `$COURSE_TEST_LIMIT_S` seconds. After that,
the Python stacks of this process and of all its descendants (workers, kernels, helpers) are
printed, and the test raises an error. If the main thread never returns to Python, this process is
killed. pytest-xdist then starts another process and continues.
"""

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep  # tests replace the clocks of the module
from typing import NoReturn

import psutil
import pytest

LIMIT_S = float(os.environ.get("COURSE_TEST_LIMIT_S", 600))
_GRACE_S = 60.0  # time between the error in a test and the end of its process
_WAKE = getattr(signal, "SIGUSR1", None)  # not SIGALRM, which `check` uses for its own limits


class _Watch:
    """A thread that measures the time of a phase, and interrupts the main thread."""

    def __init__(self) -> None:
        self.phase, self.deadline = 0, float("inf")
        self.stderr = os.dup(2)  # the real stderr, because captured output is lost with the process
        self.main = threading.main_thread()
        threading.Thread(target=self._run, daemon=True, name="hangs").start()

    @contextmanager
    def one_phase(self) -> Iterator[None]:
        self.phase += 1
        self.deadline = monotonic() + LIMIT_S
        faulthandler.dump_traceback_later(LIMIT_S + _GRACE_S, exit=True, file=self.stderr)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            self.deadline = float("inf")

    def _run(self) -> None:
        while self.main.is_alive():
            sleep(min(1.0, LIMIT_S / 4))
            phase = self.phase
            if monotonic() > self.deadline:
                self.deadline = monotonic() + _GRACE_S / 4  # the test may swallow the error
                print(stacks(), file=sys.stderr, flush=True)
                if _WAKE and self.main.ident and phase == self.phase:
                    signal.pthread_kill(self.main.ident, _WAKE)


_watch: _Watch


def pytest_sessionstart() -> None:
    global _watch
    _watch = _Watch()
    if _WAKE:
        signal.signal(_WAKE, _fail)


def _fail(*_: object) -> NoReturn:
    pytest.fail(f"This took more than {LIMIT_S:g} s. See stderr for the stacks of all processes.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    with _watch.one_phase():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with _watch.one_phase():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    with _watch.one_phase():
        return (yield)


def stacks() -> str:
    """Return the stacks of all threads in this process and in its Python descendants."""
    me = psutil.Process()
    return "\n".join(filter(None, map(_shown, [me, *me.children(recursive=True)])))


def _shown(process: psutil.Process) -> str:
    try:
        command, status = " ".join(process.cmdline())[:200], process.status()
        is_python = "python" in Path(process.exe()).name  # torch workers change their name
    except psutil.Error:
        return ""
    program = shutil.which("py-spy", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    if not program or not is_python or status == psutil.STATUS_ZOMBIE:
        return f"Process {process.pid}, {status}: {command}"
    look = [program, "dump", "--pid", str(process.pid)]
    try:
        run = subprocess.run(look, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Process {process.pid}: {command}\n{error}"
    return run.stdout or run.stderr
