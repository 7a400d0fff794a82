"""A test that hangs shows what all of its processes are at, and fails.

Each of its three phases (set up, call, tear down) may take `$COURSE_TEST_LIMIT_S` seconds. After
that the Python stacks of this process and of all below it (workers, kernels, helpers) are printed,
and an error is raised where the test is. Where not even that ends it, because the main thread never
comes back to Python, this process is ended: pytest-xdist then starts another one and goes on.
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
from time import monotonic, sleep  # tests put other clocks into the module
from typing import NoReturn

import psutil
import pytest

LIMIT_S = float(os.environ.get("COURSE_TEST_LIMIT_S", 600))
_GRACE_S = 60.0  # from the error in a test to the end of its process
_WAKE = getattr(signal, "SIGUSR1", None)  # SIGALRM is what `check` uses for limits of its own


class _Watch:
    """A thread that looks how long a phase takes, and wakes the main thread out of it."""

    def __init__(self) -> None:
        self.phase, self.deadline = 0, float("inf")
        self.stderr = os.dup(2)  # the real one: what a test prints is lost if its process is ended
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
                self.deadline = monotonic() + _GRACE_S / 4  # the error may be swallowed
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
    pytest.fail(f"This took more than {LIMIT_S:g} s; stderr has the stacks of all its processes.")


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
    """Return where every thread is, in this process and in all Python processes below it."""
    me = psutil.Process()
    return "\n".join(filter(None, map(_shown, [me, *me.children(recursive=True)])))


def _shown(process: psutil.Process) -> str:
    try:
        command, status = " ".join(process.cmdline())[:200], process.status()
        is_python = "python" in Path(process.exe()).name  # a worker of torch has a name of its own
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
