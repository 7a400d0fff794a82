"""Let loaders take turns, each in processes of its own, so that a busy neighbour meets all alike.

A loader lives in a process from its first batch to its last epoch, and waits there while others
have their turn. Whatever it starts besides, workers or threads, belongs to it: so does the time
that cores work for it.
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
from course_stories.peers.environment import is_installed, python_of
from course_stories.peers.ledger import ledger
from course_stories.peers.measure import Measured, threads
from course_stories.peers.peer import Package
from course_utils.paths import REPO

ROUNDS, QUICK_ROUNDS, QUICK_S = 3, 21, 0.4  # who takes less than QUICK_S has more rounds
LONGEST_S = 600.0  # of one answer; then a loader counts as hung


class Trial:
    """A loader in a process of its own, its turns, and why it failed if it did."""

    def __init__(self, key: str, name: str, table: Table, folder: Path):
        """Start the process, and let it run an epoch that warms it up."""
        self.name, self.failed, self.turns = name, "", list[Measured]()
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
        """Run an epoch."""
        if (found := self._answer(number)) is not None:
            self.turns.append(found)

    def _answer(self, number: int) -> Measured | None:
        answer: Measured | str = "it ended, or came to no end"
        with suppress(EOFError, OSError):
            self.connection.send(number)
            if self.connection.poll(LONGEST_S):
                answer = self.connection.recv()
        if isinstance(answer, str):
            self.failed = answer
            return None
        return answer

    def end(self) -> None:
        """End the process and all that it started."""
        if hasattr(self, "process"):
            self.connection.close()
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def median(self) -> Measured:
        """Return the median turn, with books that are wrong if those of any turn were."""
        turns = sorted(self.turns, key=lambda turn: turn.seconds)
        books = next((turn.books for turn in turns if not turn.books.complete), turns[0].books)
        return replace(turns[len(turns) // 2], books=books)


def measure(
    key: str, table: Table, folder: Path, rounds: int = ROUNDS, quick_rounds: int = QUICK_ROUNDS
) -> tuple[list[Measured], dict[str, str]]:
    """Let all loaders of a table take turns.

    Args:
        key: what the table is called in `benchmarks.peers`.
        table: the loaders.
        folder: where their files are, or will be.
        rounds: epochs of each, besides one that warms it up.
        quick_rounds: epochs of those that take little time.

    Returns:
        What was measured, and for each loader that was left out the reason.
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
    """A loader in the process that is its own: open, and measured epoch by epoch."""

    def __init__(self, name: str, table: Table, folder: Path):
        """Write the files if they are not there, open the loader, and take the first batch."""
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

    def run(self, number: int) -> Measured:
        """Run an epoch; number 0 is the one that has begun."""
        batches, epoch = ([], self.epoch(number)) if number else (self.batches, self.begun)
        cpu_s, start = _cpu_seconds(), time.perf_counter()
        batches.extend(epoch)
        seconds = time.perf_counter() - start
        needs = self.peer.needs
        return Measured(
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
    """Return what cores worked for this process and all that it started, ended or not."""
    own = psutil.Process()
    total = time.process_time() + sum(own.cpu_times()[2:4])  # of children that ended
    for process in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def main(key: str, name: str, count: str, folder: str, descriptor: str) -> None:
    """Answer with a measurement, or with the reason why there is none, until nobody asks."""
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
