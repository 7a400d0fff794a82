"""Run loaders alternately, each in a separate process, so that load affects all of them equally.

A loader stays in its process from the first batch to the last epoch, and waits there while others
run. Its workers and threads belong to it, and so does their CPU time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from benchmarks.peers.tables import TABLES, Table
from course_utils.paths import REPO
from course_utils.stories.peers.environment import is_installed, python_of
from course_utils.stories.peers.ledger import ledger
from course_utils.stories.peers.measure import Measurement, threads
from course_utils.stories.peers.peer import Package

ROUNDS, QUICK_ROUNDS, QUICK_S = 3, 21, 0.4  # an epoch below QUICK_S is repeated QUICK_ROUNDS times
LONGEST_S = 600.0  # timeout of one epoch


class Trial:
    """A loader in a separate process, its measured epochs, and the reason for a failure."""

    def __init__(self, key: str, name: str, table: Table, folder: Path):
        """Start the process, and run a warm-up epoch in it."""
        self.name, self.failed, self.turns = name, "", list[Measurement]()
        package = table.peers[name].needs
        python = _python(package)
        if python is None:
            self.failed = f"install it with `pip install {package and package.name}`"
            return
        call = "benchmarks.peers.rounds", key, name, str(table.count), str(folder)
        self.connection, theirs = Pipe()
        with theirs, (folder / "said.txt").open("ab") as said:
            self.process = subprocess.Popen(
                [python, "-m", *call, str(theirs.fileno())],
                cwd=REPO,
                env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self.first = self._answer(0)

    def turn(self, number: int) -> None:
        """Run one epoch."""
        if (found := self._answer(number)) is not None:
            self.turns.append(found)

    def _answer(self, number: int) -> Measurement | None:
        answer: Measurement | str = "it ended or hung"
        with suppress(EOFError, OSError):
            self.connection.send(number)
            if self.connection.poll(LONGEST_S):
                answer = self.connection.recv()
        if isinstance(answer, str):
            self.failed = answer
            return None
        return answer

    def end(self) -> None:
        """End the process and its children."""
        if hasattr(self, "process"):
            self.connection.close()
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def median(self) -> Measurement:
        """Return the median epoch, with the counts of an incomplete one if there is one."""
        turns = sorted(self.turns, key=lambda turn: turn.seconds)
        books = next((turn.books for turn in turns if not turn.books.complete), turns[0].books)
        return replace(turns[len(turns) // 2], books=books)


def measure(
    key: str, table: Table, folder: Path, rounds: int = ROUNDS, quick_rounds: int = QUICK_ROUNDS
) -> tuple[list[Measurement], dict[str, str]]:
    """Run all loaders of a table alternately.

    Args:
        key: Name of the table in `benchmarks.peers`.
        table: Table of loaders.
        folder: Folder of their files, which are created if necessary.
        rounds: Epochs of each loader, in addition to a warm-up epoch.
        quick_rounds: Epochs of fast loaders.

    Returns:
        The measurements, and the reason for each loader that was left out.
    """
    trials: list[Trial] = []
    try:
        trials.extend(Trial(key, name, table, folder) for name in table.peers)
        for number in range(1, max(rounds, quick_rounds) + 1):
            for trial in trials:
                if not trial.failed:
                    quick = trial.first is not None and trial.first.seconds < QUICK_S
                    if number <= (quick_rounds if quick else rounds):
                        trial.turn(number)
        done = [trial.median() for trial in trials if not trial.failed]
        return done, {trial.name: trial.failed for trial in trials if trial.failed}
    finally:
        for trial in trials:
            trial.end()


def _python(package: Package | None) -> str | None:
    """Return the Python that has a library: this one, or that of its environment in `.peers`."""
    if package is None or _version(package):
        return sys.executable
    return str(python_of(package)) if is_installed(package) else None


def _version(package: Package) -> str:
    with suppress(PackageNotFoundError):
        return version(package.name)
    return ""


class Loaded:
    """A loader in its own process: opened, and measured epoch by epoch."""

    def __init__(self, name: str, table: Table, folder: Path):
        """Write the files if they do not exist, open the loader, and take the first batch."""
        self.name, self.peer = name, table.peers[name]
        self.count = table.samples(self.peer)
        place = table.written(self.peer, folder)
        start = time.perf_counter()
        self.epoch = self.peer.load(place, table.batch_size)
        self.begun = self.epoch(0)
        self.batches = [next(self.begun)]
        self.first_s = time.perf_counter() - start
        self.pixels = None
        if self.peer.pixels:
            with tempfile.TemporaryDirectory() as other:
                self.pixels = self.peer.pixels(Path(other))

    def run(self, number: int) -> Measurement:
        """Run an epoch; number 0 is the one that has already started."""
        batches, epoch = ([], self.epoch(number)) if number else (self.batches, self.begun)
        cpu_s, start = _cpu_seconds(), time.perf_counter()
        batches.extend(epoch)
        seconds = time.perf_counter() - start
        needs = self.peer.needs
        return Measurement(
            self.name,
            f"{needs.name} {_version(needs)}" if needs else "",
            seconds,
            _cpu_seconds() - cpu_s,
            self.first_s,
            ledger(batches, self.count),
            self.peer.uses,
            self.pixels,
        )


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of all its children, running or ended."""
    own = psutil.Process()
    total = time.process_time() + sum(own.cpu_times()[2:4])  # children that have ended
    for process in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def main(key: str, name: str, count: str, folder: str, descriptor: str) -> None:
    """Answer each request with a measurement or an error message, until the parent closes."""
    table = TABLES[key].cut(int(count))
    with Connection(int(descriptor)) as parent:
        try:
            with threads(table.peers[name].threads):
                loaded = Loaded(name, table, Path(folder))
                while True:
                    parent.send(loaded.run(parent.recv()))
        except EOFError:
            pass
        except Exception as error:
            traceback.print_exc()
            parent.send(f"{type(error).__name__}: {error}".splitlines()[0])
    os._exit(0)  # threads of libraries may never end


if __name__ == "__main__":
    main(*sys.argv[1:])
