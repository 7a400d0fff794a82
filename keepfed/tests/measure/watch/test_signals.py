"""Each signal reaches the watched program once, whoever receives it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no such signals")

NAMES = "SIGHUP", "SIGINT", "SIGQUIT", "SIGALRM", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU"
PROGRAM = """
import os, signal, sys, time
for name in sys.argv[1:]:
    number = getattr(signal, name)
    signal.signal(number, lambda number, frame: os.write(1, b"%d\\n" % number))
os.write(1, b"ready\\n")
while True:
    time.sleep(60)
"""


def started(folder: Path, *handled: str) -> subprocess.Popen[str]:
    """Start a watched program, in a process group of its own, that prints handled signals."""
    watch = [sys.executable, "-m", "keepfed.command", "watch", "--out", str(folder)]
    watched = subprocess.Popen(
        [*watch, sys.executable, "-c", PROGRAM, *handled],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    assert watched.stdout.readline() == "ready\n"
    return watched


def test_each_signal_to_process_or_group_is_handled_once(tmp_path: Path) -> None:
    last = "SIGVTALRM"
    watched = started(tmp_path, *NAMES, last)
    cases = [(send, name) for send in (os.kill, os.killpg) for name in NAMES]
    for send, name in [*cases, (os.kill, last), (os.kill, last)]:
        send(watched.pid, getattr(signal, name))
        assert int(watched.stdout.readline()) == getattr(signal, name), (name, send)
    os.killpg(watched.pid, signal.SIGKILL)
    assert watched.communicate()[0] == ""  # nothing was handled twice, and both have ended


def test_an_unhandled_signal_ends_both(tmp_path: Path) -> None:
    runs = {name: started(tmp_path) for name in NAMES}
    for name, watched in runs.items():
        os.kill(watched.pid, getattr(signal, name))
    for name, watched in runs.items():
        watched.communicate(timeout=60)  # the program has closed its output
        assert watched.returncode == 128 + getattr(signal, name)


def test_ignored_signals_stay_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        watched = started(tmp_path, "SIGUSR1", "SIGUSR2")
    finally:
        signal.signal(signal.SIGHUP, before)
    # two signals, because equal ones that arrive together are one
    for send, number in (os.killpg, signal.SIGUSR1), (os.kill, signal.SIGUSR2):
        send(watched.pid, signal.SIGHUP)
        send(watched.pid, number)
        assert int(watched.stdout.readline()) == number
    os.killpg(watched.pid, signal.SIGKILL)
    watched.communicate()
