"""Sample the stacks from outside with py-spy, which needs no GIL and so charges the right line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from keepfed.files import replace_file
from keepfed.measure.stacks.place import Frame, StackRow, find_row
from keepfed.measure.stacks.sampler import STACKS, allow_reading

RATE = 50  # samples in a second
RECORD = f"record --rate {RATE} --format raw --subprocesses --nonblocking --idle --full-filenames"
LOOK_EVERY_S = 0.3  # s between two looks for processes that have begun
PATIENCE_S = 10.0  # s in which py-spy must write its file

_PROCESS = re.compile(r'process (\d+):"')
_FRAME = re.compile(r"([^;]+?) \(([^;]*):(\d+)\)(?=;| \d+$)")


class OutsideSampler:
    """Samples processes and their children, and replaces the samples of each `StackSampler`.

    Without py-spy, or without the right to read other processes, those samples stay.
    """

    def __init__(self, folder: Path, process: int | None = None):
        """Prepare for the processes that write into `folder`.

        `process` is this one. None waits for the main processes of a watched program.
        """
        scripts = sysconfig.get_path("scripts"), os.environ.get("PATH", "")
        self._program = shutil.which("py-spy", path=os.pathsep.join(scripts))
        self.reader = os.getpid() if self._program else 0  # for `StackSampler`
        self._folder, self._process = folder, process
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> OutsideSampler:
        if self._program and self._process is not None:
            allow_reading(self._process)
            self._attach(self._process)
        elif self._program:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        for running in self._running.values():
            with suppress(Exception, KeyboardInterrupt):
                running.send_signal(signal.SIGINT)
                running.wait(PATIENCE_S)
            running.kill()
            running.wait()
        with suppress(Exception):  # an error costs the lines, never the exit code of a program
            self._replace()

    def _attach(self, process: int) -> None:
        out = ["--output", str(self._folder / f"{process}.raw"), "--pid", str(process)]
        with suppress(OSError):
            self._running[process] = subprocess.Popen(
                [str(self._program), *RECORD.split(), *out],
                stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True,
            )  # fmt: skip

    def _look(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            for file in self._folder.glob(f"{STACKS}main-*.json"):
                if (process := _process_of(file)) not in self._running:
                    self._attach(process)

    def _replace(self) -> None:
        rows: dict[int, list[StackRow]] = defaultdict(list)
        for file in self._folder.glob("*.raw"):
            for line in file.read_text("utf-8", "replace").splitlines():
                frames = [Frame(name, what, int(n)) for what, name, n in _FRAME.findall(line)]
                if frames and (row := find_row(frames[::-1])):
                    seconds = int(line.rpartition(" ")[2]) / RATE
                    rows[int(_PROCESS.findall(line)[-1])].append(row._replace(seconds=seconds))
        for file in self._folder.glob(f"{STACKS}*.json"):
            if outside := rows.get(_process_of(file)):
                known: dict[str, Any] = json.loads(file.read_text("utf-8"))
                known["rows"] = _with_calls(outside, [StackRow(*row) for row in known["rows"]])
                replace_file(file, json.dumps(known))


def _with_calls(rows: list[StackRow], before: list[StackRow]) -> list[StackRow]:
    """Return the rows with what the thread knows better: the calls, and what waited."""
    before = sorted(before, key=lambda row: row.seconds)
    calls = {(row.file, row.line, row.library): row.call for row in before}
    waits = {(row.file, row.line): row.waits for row in before}
    places = [(row, (row.file, row.line)) for row in rows]
    return [
        row._replace(call=calls.get((*at, row.library)), waits=waits.get(at, False))
        for row, at in places
    ]


def _process_of(file: Path) -> int:
    return int(file.stem.rpartition("-")[2])
