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
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from keepfed.measure.records import UNKNOWN, Fetch, Iteration

FOLDER = "KEEPFED_WATCH"  # environment variable with the folder of the records
LINES = "KEEPFED_WATCH_LINES"  # environment variable that is set if stacks are sampled
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


class Totals(NamedTuple):
    """Sums over all iterations over a loader in one process."""

    iterations: int = 0
    epochs: int = 0
    first_ns: int = 0  # time at which the loop asked for the first batch
    last_ns: int = 0  # time at which the last batch arrived, or the epoch ended
    waited_ns: int = 0  # total time in next()
    began_ns: int = 0  # time in next() for the first batch of each epoch
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
    timed: int = 0  # iterations with measured times; the other times are estimated
    ended_ns: int = 0  # time in next() at the end of each complete epoch

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
    price: float = 0.0  # euros for an hour on the machine; 0 if unknown


_WIDTH = len(Iteration._fields) + len(Fetch._fields)
_ROW, _TOTALS = struct.Struct(f"<{_WIDTH}q"), struct.Struct(f"<{len(Totals._fields)}q")
_RING = ABOUT + _TOTALS.size
_SIZE = _RING + ROWS * _ROW.size
_NO_FETCH = Fetch(UNKNOWN, 0, 0, 0)


class FieldIndex:
    """Indices of the totals in `figures`, and of some fields in the row of an iteration."""

    (
        ITERATIONS, EPOCHS, FIRST, LAST, WAITED, BEGAN, WORKED, IDLE, IDLE_ITERATIONS, ELSEWHERE,
        CORES, STEP_CPU, STEP_SEEN, SAMPLED, SAMPLER_CALLS, LOOKS, HELD_UP, TIMED,
        ENDED,
    ) = range(len(Totals._fields))  # fmt: skip
    GOT, LEFT, DEVICE_IDLE, DEVICE_WORK = map(
        Iteration._fields.index, ("got_ns", "left_ns", "device_idle_ns", "device_work_ns")
    )


class RingFile:
    """File with the figures of one loader in one process.

    `figures` is a view of the totals, followed by the ring.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]):
        """Create the file and reserve its space.

        Raises:
            OSError: If the disk does not have enough free space.
        """
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
        self.figures = memoryview(self._map)[ABOUT:].cast("q")
        self.describe(about)
        os.replace(partial, path)  # readers never see a file without its description

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write the description of the loader. Strings are cut to 200 characters."""
        short = {k: value[:200] if isinstance(value, str) else value for k, value in about.items()}
        self._map[:ABOUT] = json.dumps(short).encode().ljust(ABOUT)

    @property
    def iterations(self) -> int:
        """Number of iterations so far, which is also the index of the next one."""
        return self.figures[FieldIndex.ITERATIONS]

    def add_iteration(
        self, place: int, asked_ns: int, got_ns: int, receiving_ns: int, fetch: Fetch | None
    ) -> int:
        """Replace the oldest iteration in the ring with a new one, and return its index.

        Args:
            place: Index of the iteration in its epoch.
            asked_ns: Time at which the loop asked for the batch.
            got_ns: Time at which the loop received the batch.
            receiving_ns: CPU time of the main thread in next().
            fetch: Cost of loading the batch, or None if unknown.
        """
        figures = self.figures
        number, waited_ns = figures[FieldIndex.ITERATIONS], got_ns - asked_ns
        _ROW.pack_into(
            self._map, _RING + number % ROWS * _ROW.size,
            number, figures[FieldIndex.EPOCHS], place, asked_ns, got_ns, 0, receiving_ns,
            UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, *(fetch or _NO_FETCH),
        )  # fmt: skip
        figures[FieldIndex.WAITED] += waited_ns
        figures[FieldIndex.LAST] = got_ns
        if not place:
            figures[FieldIndex.FIRST] = figures[FieldIndex.FIRST] or asked_ns
            figures[FieldIndex.BEGAN] += waited_ns
        figures[FieldIndex.TIMED] += 1
        # Write the count last, because a reader ignores rows beyond it.
        figures[FieldIndex.ITERATIONS] = number + 1
        return number

    def end_iteration(self, number: int, when_ns: int | None) -> None:
        """Write when the loop asked for the next batch, None if it used another loader first."""
        figures, row = self.figures, len(Totals._fields) + number % ROWS * _WIDTH
        if figures[row] != number:
            return  # the ring no longer contains this iteration
        if when_ns is None:
            figures[row + FieldIndex.LEFT] = UNKNOWN
        else:
            figures[row + FieldIndex.LEFT] = when_ns
            figures[FieldIndex.WORKED] += when_ns - figures[row + FieldIndex.GOT]

    def add_skipped(self, iterations: int, waited_ns: float, worked_ns: float) -> None:
        """Count iterations that were not timed, and add their estimated times."""
        self.figures[FieldIndex.WAITED] += round(waited_ns)
        self.figures[FieldIndex.WORKED] += round(worked_ns)
        self.figures[FieldIndex.ITERATIONS] += iterations

    def set_field(self, number: int, field: int, value: float) -> None:
        """Write one field of an earlier iteration, if the ring still contains it."""
        row = len(Totals._fields) + number % ROWS * _WIDTH
        if self.figures[row] == number:
            self.figures[row + field] = round(value)


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
    width, iterations, fetches = len(Iteration._fields), list[Iteration](), dict[int, Fetch]()
    for row in _ROW.iter_unpack(content[_RING:]):
        iteration, fetch = Iteration(*row[:width]), Fetch(*row[width:])
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
