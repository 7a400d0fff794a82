"""Keep what is watched of a loader in a file that is mapped to memory, and read it there.

The file has a fixed size: a description, running totals, and a ring of the last iterations, each
with the fetch of its batch. What was written is in it however the process ends, even by a signal
that nobody can catch, and another process can read it at any time. Only the standard library is
needed here.
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

FOLDER = "KEEPFED_WATCH"  # the environment variable that names the folder of the records
ENDING = ".watched"
PROCESS = ".process"  # a file that a process leaves in which torch was imported
FAILED = ".failed.process"  # its new ending after an error of our own code
ABOUT = 8192  # bytes of the description
ROWS = 2048  # iterations that are remembered


def is_watched() -> bool:
    """Tell whether `keepfed watch` watches all loaders of this process."""
    return FOLDER in os.environ


@cache
def records_folder() -> Path:
    """Return where this process keeps its files; without `keepfed watch`, as long as it lives."""
    if is_watched():
        return Path(os.environ[FOLDER])
    own = tempfile.TemporaryDirectory(prefix="keepfed-watch-")
    atexit.register(own.cleanup)
    return Path(own.name)


class Totals(NamedTuple):
    """Sums over all iterations over a loader in one process."""

    iterations: int = 0
    epochs: int = 0
    first_ns: int = 0  # when the first batch was asked for
    last_ns: int = 0  # when the last one was there, or the epoch ended
    waited_ns: int = 0  # in next(), in all
    began_ns: int = 0  # of it: for the first batch of each epoch
    worked_ns: int = 0  # between a batch and the next call of next()
    device_idle_ns: int = 0
    device_iterations: int = 0  # of which that is known
    elsewhere: int = 0  # calls of next() by other threads than the main one
    cores: int = 0  # that the workers may use, together
    step_cpu_ns: int = 0  # processor time of the process between a batch and next(), in some
    step_seen_ns: int = 0  # the time of these
    sampled_ns: int = 0  # processor time of the sampler, in this process
    sampler_calls: int = 0
    looks: int = 0  # at what the workers wait for
    held_up: int = 0  # of them found that one held up the others
    timed: int = 0  # iterations whose times were measured; the times of the others are estimated


_WIDTH = len(Iteration._fields) + len(Fetch._fields)
_ROW, _TOTALS = struct.Struct(f"<{_WIDTH}q"), struct.Struct(f"<{len(Totals._fields)}q")
_RING = ABOUT + _TOTALS.size
_SIZE = _RING + ROWS * _ROW.size
_NO_FETCH = Fetch(UNKNOWN, 0, 0, 0)


class FieldIndex:
    """Where the totals stand among the figures, and some figures of an iteration in its row."""

    (
        ITERATIONS, EPOCHS, FIRST, LAST, WAITED, BEGAN, WORKED, IDLE, IDLE_ITERATIONS, ELSEWHERE,
        CORES, STEP_CPU, STEP_SEEN, SAMPLED, SAMPLER_CALLS, LOOKS, HELD_UP, TIMED,
    ) = range(len(Totals._fields))  # fmt: skip
    GOT, LEFT, DEVICE_IDLE, DEVICE_WORK = map(
        Iteration._fields.index, ("got_ns", "left_ns", "device_idle_ns", "device_work_ns")
    )


class RingFile:
    """What one process writes down of one loader; its `figures` are the totals, then the ring."""

    def __init__(self, path: Path, about: Mapping[str, Any]):
        """Make the file.

        Raises:
            OSError: If there is no space for all of it.
        """
        partial = path.with_suffix(".part")
        try:
            with partial.open("wb+") as file:
                # Writing reserves the space: a hole in a full tmpfs kills the process that fills it
                file.write(bytes(_SIZE))
                file.flush()
                self._map = mmap.mmap(file.fileno(), _SIZE)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        self.figures = memoryview(self._map)[ABOUT:].cast("q")
        self.describe(about)
        os.replace(partial, path)  # so that a reader finds none without its description

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write what is known of the loader; of a long word the end is lost."""
        short = {k: value[:200] if isinstance(value, str) else value for k, value in about.items()}
        self._map[:ABOUT] = json.dumps(short).encode().ljust(ABOUT)

    @property
    def iterations(self) -> int:
        """How many there were, which is the number of the next one."""
        return self.figures[FieldIndex.ITERATIONS]

    def add_iteration(
        self, place: int, asked_ns: int, got_ns: int, receiving_ns: int, fetch: Fetch | None
    ) -> int:
        """Write an iteration over the oldest one and count it; return its number.

        Args:
            place: in the epoch.
            asked_ns: when the batch was asked for.
            got_ns: when it was there.
            receiving_ns: processor time of the main thread.
            fetch: None if it is not known how the batch was made.
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
        figures[FieldIndex.ITERATIONS] = number + 1  # at last: a reader counts whole ones only
        return number

    def end_iteration(self, number: int, when_ns: int | None) -> None:
        """Write when the loop came back; None if another loader was asked in between."""
        figures, row = self.figures, len(Totals._fields) + number % ROWS * _WIDTH
        if figures[row] != number:
            return  # forgotten
        if when_ns is None:
            figures[row + FieldIndex.LEFT] = UNKNOWN
        else:
            figures[row + FieldIndex.LEFT] = when_ns
            figures[FieldIndex.WORKED] += when_ns - figures[row + FieldIndex.GOT]

    def add_skipped(self, iterations: int, waited_ns: float, worked_ns: float) -> None:
        """Count iterations that were not timed, with an estimate of their times."""
        self.figures[FieldIndex.WAITED] += round(waited_ns)
        self.figures[FieldIndex.WORKED] += round(worked_ns)
        self.figures[FieldIndex.ITERATIONS] += iterations

    def set_field(self, number: int, field: int, value: float) -> None:
        """Write one figure of an iteration that was not known at once, if it is remembered."""
        row = len(Totals._fields) + number % ROWS * _WIDTH
        if self.figures[row] == number:
            self.figures[row + field] = round(value)


@dataclass(frozen=True)
class Observation:
    """What was written down of a loader in one process."""

    about: Mapping[str, Any]
    totals: Totals
    iterations: list[Iteration]  # the last ones, in order
    fetches: Mapping[int, Fetch]  # by the number of the iteration, as far as they are known

    @property
    def rank(self) -> int:
        """Which rank it was."""
        return int(self.about["rank"])


def read(path: Path) -> Observation:
    """Read a file, also while it is being written."""
    content = path.read_bytes()
    totals = Totals(*_TOTALS.unpack_from(content, ABOUT))
    width, iterations, fetches = len(Iteration._fields), list[Iteration](), dict[int, Fetch]()
    for row in _ROW.iter_unpack(content[_RING:]):
        iteration, fetch = Iteration(*row[:width]), Fetch(*row[width:])
        if iteration.got_ns and iteration.number < totals.iterations:
            iterations.append(iteration)
            if fetch.ended_ns:
                fetches[iteration.number] = fetch
    return Observation(json.loads(content[:ABOUT]), totals, sorted(iterations), fetches)


def read_all(folder: Path) -> list[Observation]:
    """Read all files in `folder`, by rank, and of a rank in the order in which they began."""
    found = [read(path) for path in folder.glob(f"*{ENDING}")]
    begun = (one for one in found if one.totals.iterations)
    return sorted(begun, key=lambda one: (one.rank, one.totals.first_ns))
