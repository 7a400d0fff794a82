"""Where the check of notebook 07 stages: a source, places, and processes that call `stage`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_utils.teaching.exercise import expect
from notebooks.exercises.nb07 import child as nb07_child

Stage = Callable[[str, str], str]

PATIENCE_S = 20.0  # until a call counts as hung; a right one needs a part of a second
LOOK_EVERY_S = 0.01


@dataclass
class Site:
    """A file to stage, a place to stage it in, and the learner's function to do it with."""

    folder: Path
    stage: Stage
    rng: random.Random
    places: int = 0
    place: Path = field(init=False)
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "storage").mkdir()
        # a name that a shell would take apart
        self.source = self.folder / "storage" / f"pulses of run {self.rng.randrange(100)}.npy"
        self.write()
        self.new_place()

    def write(self, *, older_s: float = 0) -> None:
        """Give the source new contents of the same size, `older_s` older than it was."""
        before = self.source.stat().st_mtime if self.source.exists() else time.time()
        size = self.source.stat().st_size if self.source.exists() else self._size()
        self.source.write_bytes(self.rng.randbytes(size))
        os.utime(self.source, (before - older_s, before - older_s))

    def new_place(self) -> None:
        """Go on in an empty folder."""
        self.places += 1
        self.place = self.folder / f"shm {self.places}"
        self.place.mkdir()

    def start(
        self,
        *,
        calls: int = 1,
        hold: bool = False,
        limit: int = 0,
        deadly: bool = False,
        name: str = "one",
    ) -> subprocess.Popen[str]:
        """Start a process that stages; see `nb07_child`."""
        order = {
            "module": self.stage.__module__,
            "function": self.stage.__qualname__,
            "source": str(self.source),
            "place": str(self.place),
            "calls": calls,
            "limit": limit,
            "deadly": deadly,
            "hold": hold,
            "signs": str(self.signs(name)),
        }
        process = subprocess.Popen(
            [sys.executable, nb07_child.__file__, json.dumps(order)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Leave no process behind, also when the check is interrupted."""
        for process in self.processes:
            process.kill()
            process.communicate()

    def signs(self, name: str) -> Path:
        """Name what the files begin with by which a process says how far it is."""
        return self.folder / f"{self.place.name} {name}"

    def run(self, **how: Any) -> list[dict[str, Any]]:
        """Stage in a process and return what came of each call; none from one that was killed."""
        return outcomes(self.start(**how))

    def copy(self, outcome: dict[str, Any]) -> bytes:
        """Return what lies where `stage` says, or nothing."""
        path = Path(outcome["returned"])
        return path.read_bytes() if path.is_file() else b""

    def held(self) -> int:
        """Return the bytes that lie in the place."""
        return sum(path.stat().st_size for path in self.place.rglob("*") if path.is_file())

    @property
    def data(self) -> bytes:
        """What the source holds now."""
        return self.source.read_bytes()

    def _size(self) -> int:
        return self.rng.randrange(200_000, 400_000)


def outcomes(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """Wait for a process and return what it printed; end one that hangs."""
    try:
        printed, complaints = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        expect(
            False,
            f"A call of stage has not returned after {PATIENCE_S:g} s: it waits for something that "
            "nobody does any more, such as a lock file that a killed process left behind.",
            "Take a lock that ends with its process: filelock.FileLock, or fcntl.flock.",
        )
    if process.returncode == 1 and "nb07_child" in complaints and not printed:
        raise RuntimeError(complaints.strip().splitlines()[-1])
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
