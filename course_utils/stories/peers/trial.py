"""Run a loader in a process of its own, which may be that of another environment.

The loader stays there from the first batch to the last epoch, and waits while others run. Its
workers and threads belong to this process, and so does their CPU time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from threading import Timer

import psutil

from course_utils.paths import REPO
from course_utils.stories.peers.environment import is_installed, python_of
from course_utils.stories.peers.measure import Measurement, OpenLoader, threads
from course_utils.stories.peers.peer import Package
from course_utils.stories.peers.tables import Table

LONGEST_S = 600.0  # time limit of one epoch


class LoaderProcess:
    """A loader in a separate process, its measured epochs, and the reason for a failure."""

    def __init__(self, tables: str, key: str, name: str, table: Table, folder: Path):
        """Start the process.

        Args:
            tables: Module whose `TABLES` has the table.
            key: Name of the table there.
            name: Name of the loader.
            table: The table, perhaps with fewer samples.
            folder: Folder of the files, which are created if necessary.
        """
        self.name, self.failed, self.epochs = name, "", list[Measurement]()
        package = table.peers[name].needs
        self.process: subprocess.Popen[str] | None = None
        self.log = folder / f"{os.getpid()}-{id(self)}.log"
        if (python := _python(package)) is None:
            self.failed = f"install it with `pip install {package and package.name}`"
            return
        call = [python, "-m", __name__, tables, key, name, str(table.count), str(folder)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                call,
                cwd=REPO,
                # no library may contact its hub
                env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, number: int) -> Measurement | None:
        """Run one epoch. Return None if the loader failed."""
        if self.process is None or self.failed:
            return None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        limit = Timer(LONGEST_S, self.close)
        limit.start()
        answer = ""
        with suppress(OSError):
            print(number, file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        limit.cancel()
        row = json.loads(answer) if answer else self._last_words()
        if isinstance(row, str):
            self.failed = row
            return None
        self.epochs.append(Measurement.from_row(row))
        return self.epochs[-1]

    def _last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it ended or hung"

    def close(self) -> None:
        """End the process and its children."""
        if self.process is None:
            return
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.process.pid)
            for process in [*top.children(recursive=True), top]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        with suppress(OSError):
            self.process.communicate()


def _python(package: Package | None) -> str | None:
    """Return the Python that has a library: this one, or that of its environment in `.peers`."""
    if package is None:
        return sys.executable
    with suppress(PackageNotFoundError):
        version(package.name)
        return sys.executable
    return str(python_of(package)) if is_installed(package) else None


def main(tables: str, key: str, name: str, count: str, folder: str) -> None:
    """Answer each epoch on stdin with a measurement or an error, as a line of JSON on stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    table: Table = import_module(tables).TABLES[key].cut(int(count))
    try:
        with threads(table.peers[name].threads):
            loader = OpenLoader(name, table, Path(folder))
            for number in sys.stdin:
                print(json.dumps(loader.run(int(number)).row()), file=answers, flush=True)
    except Exception as error:
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(json.dumps(reason), file=answers, flush=True)
    os._exit(0)  # threads of libraries may never end


if __name__ == "__main__":
    main(*sys.argv[1:])
