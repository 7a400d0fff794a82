"""Store the figures of a watched loader in a memory-mapped file, and read them again.

The file has a fixed size. It contains a description, running totals, and a ring of the last
iterations, each with the fetch of its batch. The data survive any end of the process, even SIGKILL,
and another process can read them at any time. This module needs only the standard library.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from keepfed.measure.records import UNKNOWN, Fetch, Iteration

FOLDER = "KEEPFED_WATCH"  # environment variable with the folder of the records
LINES = "KEEPFED_WATCH_LINES"  # process whose children may sample the stacks, if they are sampled
ENDING = ".watched"
PROCESS = ".process"  # suffix of the file that each process with torch writes
FAILED = ".failed.process"  # suffix of the same file after an error in keepfed
ABOUT = 8192  # size of the description in bytes
ROWS = 2048  # number of iterations in the ring


def is_watched() -> bool:
    """Return whether `keepfed watch` watches all loaders of this process."""
    return FOLDER in os.environ


@cache
def records_folder() -> Path:
    """Return the folder for the files of this process.

    Without `keepfed watch`, this is a temporary folder that is removed when the process exits.
    """
    if is_watched():
        return Path(os.environ[FOLDER])
    own = tempfile.TemporaryDirectory(prefix="keepfed-watch-")
    atexit.register(own.cleanup)
    return Path(own.name)


@dataclass(slots=True)
class Totals:
    """Sums over all iterations over a loader in one process."""

    iterations: int = 0
    timed: int = 0  # iterations with measured times; the other times are estimated
    epochs: int = 0
    first_ns: int = 0  # time at which the loop asked for the first batch
    last_ns: int = 0  # time at which the last batch arrived, or the epoch ended
    waited_ns: int = 0  # total time in next()
    began_ns: int = 0  # time in next() for the first batch of each epoch
    ended_ns: int = 0  # time in next() at the end of each complete epoch
    worked_ns: int = 0  # time between receiving a batch and the next call of next()
    device_idle_ns: int = 0
    device_iterations: int = 0  # iterations with a known device idle time
    elsewhere: int = 0  # calls of next() outside the main thread
    cores: int = 0  # number of cores that at least one worker may use
    step_cpu_ns: int = 0  # CPU time of the process during the sampled steps
    step_seen_ns: int = 0  # wall time of the sampled steps
    sampled_ns: int = 0  # CPU time of the sampler in this process
    sampler_calls: int = 0
    looks: int = 0  # checks for workers that wait for a lock
    held_up: int = 0  # checks in which one worker blocked the others

    @property
    def lasted_ns(self) -> int:
        """Total time of the loop."""
        return self.waited_ns + self.worked_ns


class ProgramRun(NamedTuple):
    """Facts about a watched program that its records do not contain."""

    command: str = ""
    code: int = 0  # exit code
    others_cores: float = 0.0  # number of cores that other programs kept busy
    machine: str = ""
    ended: str = ""  # date and time


_TOTAL_NAMES = tuple(field.name for field in fields(Totals))
_values = attrgetter(*_TOTAL_NAMES)
_WIDTH = len(Iteration._fields)
_ROW = struct.Struct(f"<{_WIDTH + len(Fetch._fields)}q")
_TOTALS = struct.Struct(f"<{len(_TOTAL_NAMES)}q")
_RING = ABOUT + _TOTALS.size
_SIZE = _RING + ROWS * _ROW.size
_NO_FETCH = Fetch(UNKNOWN, 0, 0, 0)


class RingFile:
    """File with the figures of one loader in one process."""

    def __init__(self, path: Path, about: Mapping[str, Any]):
        """Create the file and reserve its space.

        Raises:
            OSError: If the disk does not have enough free space.
        """
        self.totals = Totals()  # `write_totals` writes them
        partial = path.with_suffix(".part")
        try:
            with partial.open("wb+") as file:
                # Write zeros to reserve the space. Otherwise a full tmpfs would kill the process
                # with SIGBUS later.
                file.write(bytes(_SIZE))
                file.flush()
                self._map = mmap.mmap(file.fileno(), _SIZE)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self.describe(about)
        os.replace(partial, path)  # readers never see a file without its description

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write the description of the loader. Strings are cut to 200 characters."""
        short = {k: value[:200] if isinstance(value, str) else value for k, value in about.items()}
        self._map[:ABOUT] = json.dumps(short).encode().ljust(ABOUT)

    def add(self, iteration: Iteration, fetch: Fetch | None) -> int:
        """Write an iteration in place of the oldest one, and return its place in the file."""
        place = self.totals.timed
        begin = _RING + place % ROWS * _ROW.size
        _ROW.pack_into(self._map, begin, *iteration, *(fetch or _NO_FETCH))
        self.totals.timed += 1
        self.totals.iterations += 1
        self.write_totals()  # last, because a reader ignores rows beyond the count
        return place

    def set_field(self, place: int, name: str, value: float) -> None:
        """Write one field of an earlier iteration, if it is still in the file."""
        if self.totals.timed - place <= ROWS:
            begin = _RING + place % ROWS * _ROW.size + 8 * Iteration._fields.index(name)
            self._map[begin : begin + 8] = round(value).to_bytes(8, "little", signed=True)

    def write_totals(self) -> None:
        """Write the totals."""
        _TOTALS.pack_into(self._map, ABOUT, *_values(self.totals))


@dataclass(frozen=True)
class Observation:
    """Contents of a `RingFile`: the figures of one loader in one process."""

    about: Mapping[str, Any]
    totals: Totals
    iterations: list[Iteration]  # last iterations, in order
    fetches: Mapping[int, Fetch]  # known fetches by the index of their iteration
    folder: Path  # folder of the file

    @property
    def rank(self) -> int:
        """Rank of the process."""
        return int(self.about["rank"])


def read(path: Path) -> Observation:
    """Read a file, even while another process writes it."""
    content = path.read_bytes()
    totals = Totals(*_TOTALS.unpack_from(content, ABOUT))
    iterations, fetches = list[Iteration](), dict[int, Fetch]()
    for row in _ROW.iter_unpack(content[_RING:]):
        iteration, fetch = Iteration(*row[:_WIDTH]), Fetch(*row[_WIDTH:])
        if iteration.got_ns and iteration.number < totals.iterations:
            iterations.append(iteration)
            if fetch.ended_ns:
                fetches[iteration.number] = fetch
    about = json.loads(content[:ABOUT])
    return Observation(about, totals, sorted(iterations), fetches, path.parent)


def read_all(folder: Path) -> list[Observation]:
    """Read all files in `folder`, sorted by rank and start time."""
    found = [read(path) for path in folder.glob(f"*{ENDING}")]
    begun = (one for one in found if one.totals.iterations)
    return sorted(begun, key=lambda one: (one.rank, one.totals.first_ns))
