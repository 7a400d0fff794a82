"""Run a program, and forward each signal to it once."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

NAMES = (
    "SIGHUP", "SIGINT", "SIGQUIT", "SIGALRM", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU",
    "SIGVTALRM", "SIGPROF", "SIGIO", "SIGPWR",
)  # fmt: skip
MOMENT_S = 0.1  # s in which a signal reaches all processes of a group


class Forwarder:
    """Forwards signals to a child, unless the child received them together with this process.

    The child stays in our process group, so that a terminal and a scheduler treat both as one job.
    A signal to the group, such as Ctrl-C, therefore reaches the child directly. One to this process
    alone does not, and Python cannot tell which of them arrived. A witness can: a process of the
    group that only reports its signals.
    """

    def __enter__(self) -> Forwarder:
        self._child: subprocess.Popen[Any] | None = None
        self._received, self._is_forwarding = set[int](), False
        self._group = set[int]()  # signals that the witness received and this process not yet
        # A signal that the caller ignores, as `nohup` does, stays ignored here and in the child.
        numbers = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
        handled = [n for n in numbers if signal.getsignal(n) not in (signal.SIG_IGN, None)]
        self._witness = _Witness(handled) if hasattr(os, "fork") else None
        self._before = {number: signal.signal(number, self._receive) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._witness:
            self._witness.end()

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a program, and return its exit code, or minus the signal that ended it."""
        child = subprocess.Popen(words, env=environment)
        for number in self._received:  # before the program started
            child.send_signal(number)
        self._received.clear()
        self._child = child
        return child.wait()

    def _receive(self, number: int, frame: Any) -> None:
        self._received.add(number)
        while self._child and self._received and not self._is_forwarding:
            self._is_forwarding = True
            numbers, self._received = self._received, set()
            time.sleep(MOMENT_S)
            # On Windows, Ctrl-C always reaches both.
            self._group |= self._witness.received() if self._witness else numbers
            for one in numbers - self._group:
                self._child.send_signal(one)
            self._group = self._group - numbers if self._received else set()
            self._is_forwarding = False


class _Witness:
    """A process of the group that reports the signals it receives."""

    def __init__(self, numbers: Iterable[int]):
        reports, report = os.pipe()
        until, self._end = os.pipe()
        self._reports, self._pid = reports, os.fork()
        if not self._pid:
            try:
                os.close(self._end)
                for number in numbers:
                    signal.signal(number, lambda number, frame: os.write(report, bytes([number])))
                os.read(until, 1)  # until the other process ends, in whatever way
            finally:
                os._exit(0)
        os.close(report)
        os.close(until)
        os.set_blocking(reports, False)

    def received(self) -> set[int]:
        """Return the signals received since the last call."""
        with suppress(BlockingIOError):
            return set(os.read(self._reports, 4096))
        return set()

    def end(self) -> None:
        """End the process."""
        os.close(self._end)
        os.waitpid(self._pid, 0)
        os.close(self._reports)
