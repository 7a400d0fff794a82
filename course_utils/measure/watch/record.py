"""Keep what is watched of a loader in a file that is mapped to memory, and read it there.

The file has a fixed size: a description, running totals, and a ring of the last turns. What was
written is in it however the process ends, be it by a signal that nobody can catch, and another
process can read it meanwhile. Only the standard library is needed here.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import struct
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = "COURSE_WATCH"  # the environment variable that names the folder of the records
ENDING = ".watched"
PROCESS = ".process"  # a file that a process leaves in which torch was imported
FAILED = ".failed.process"  # its new ending after an error of our own code
ABOUT = 8192  # bytes of the description
ROWS = 2048  # turns that are remembered
UNKNOWN = -1.0
STAGES = ("read", "decode", "transform")  # that a dataset may name, as the last fields of a turn
NO_STAGES = 0.0, 0.0, 0.0


def is_watched() -> bool:
    """Tell whether `course watch` watches all loaders of this process."""
    return FOLDER in os.environ


@cache
def records_folder() -> Path:
    """Return where this process keeps its records; without `course watch`, as long as it lives."""
    if is_watched():
        return Path(os.environ[FOLDER])
    own = tempfile.TemporaryDirectory(prefix="course-watch-")
    atexit.register(own.cleanup)
    return Path(own.name)


class Turn(NamedTuple):
    """One turn of a loop: a call of next(), and what the loop did with the batch.

    Times are nanoseconds of `time.perf_counter_ns`, as floats, which hold them exactly for 104 days
    of uptime. Those of a fetch are 0 where it is not known how the batch was made.
    """

    number: float
    epoch: float
    place: float  # in the epoch
    asked: float
    got: float
    left: float = 0.0  # when the loop came back; 0: it has not, UNKNOWN: not straight from here
    received: float = UNKNOWN  # processor time of the main thread in next(); of some turns
    device_idle: float = UNKNOWN  # during next(), by the clock of the device
    device_work: float = UNKNOWN  # from the batch to the next call of next(), by the same clock
    worker: float = UNKNOWN
    began: float = 0.0
    made: float = 0.0  # all samples were there, and collating began; 0: that is not known
    done: float = 0.0
    cpu: float = UNKNOWN  # of the fetching thread; this and the next two of some turns
    fetch_cpu: float = UNKNOWN  # of its whole process meanwhile: more if there are thread pools
    process_cpu: float = UNKNOWN  # of that process since it began
    delay: float = 0.0  # ready and without a core
    read: float = 0.0  # of the stages that the dataset names
    decode: float = 0.0
    transform: float = 0.0


SOME = 16  # of so many turns that are short, processor time is read in one: that takes microseconds
LONG_NS = 2_000_000


class Totals(NamedTuple):
    """Sums over all turns of a loader in one process; times are nanoseconds."""

    turns: float = 0.0
    epochs: float = 0.0
    first: float = 0.0  # when the first batch was asked for
    last: float = 0.0  # when the last one was there, or the epoch ended
    waited: float = 0.0  # in next(), in all
    began: float = 0.0  # of it: for the first batch of each epoch
    worked: float = 0.0  # between a batch and the next call of next()
    device_idle: float = 0.0
    device_turns: float = 0.0  # of which that is known
    elsewhere: float = 0.0  # calls of next() by other threads than the main one
    cores: float = 0.0  # that the workers may use, together
    step_cpu: float = 0.0  # processor time of the process between a batch and next(), in some turns
    step_seen: float = 0.0  # the time of these
    timed: float = 0.0  # turns whose times were measured; the times of the others are estimated


_ROW, _TOTALS = struct.Struct(f"<{len(Turn._fields)}d"), struct.Struct(f"<{len(Totals._fields)}d")
_RING = ABOUT + _TOTALS.size
_SIZE = _RING + ROWS * _ROW.size
_WIDTH = len(Turn._fields)
_NO_FETCH = tuple(Turn(0, 0, 0, 0, 0)[Turn._fields.index("worker") :])


class At:
    """Where the totals stand among the figures, and some figures of a turn in its row."""

    (
        TURNS, EPOCHS, FIRST, LAST, WAITED, BEGAN, WORKED, IDLE, IDLE_TURNS, ELSEWHERE, CORES,
        STEP_CPU, STEP_SEEN, TIMED,
    ) = range(len(Totals._fields))  # fmt: skip
    GOT, LEFT, DEVICE_IDLE, DEVICE_WORK = map(
        Turn._fields.index, ("got", "left", "device_idle", "device_work")
    )


class Record:
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
        self.figures = memoryview(self._map)[ABOUT:].cast("d")
        self.describe(about)
        os.replace(partial, path)  # so that a reader finds none without its description

    def describe(self, about: Mapping[str, Any]) -> None:
        """Write what is known of the loader; of a long word the end is lost."""
        short = {k: value[:200] if isinstance(value, str) else value for k, value in about.items()}
        self._map[:ABOUT] = json.dumps(short).encode().ljust(ABOUT)

    @property
    def turns(self) -> int:
        """How many there were, which is the number of the next one."""
        return int(self.figures[At.TURNS])

    def turn(
        self, place: int, asked: int, got: int, received: float, fetch: Sequence[float] | None
    ) -> int:
        """Write a turn over the oldest one and count it; return its number.

        Args:
            place: in the epoch; as the next three one of the figures of a `Turn`.
            asked: when the batch was asked for.
            got: when it was there.
            received: processor time of the main thread.
            fetch: the figures from `worker` on; None if it is not known how the batch was made.
        """
        figures = self.figures
        number, waited = self.turns, got - asked
        _ROW.pack_into(
            self._map, _RING + number % ROWS * _ROW.size,
            number, figures[At.EPOCHS], place, asked, got, 0.0, received, UNKNOWN, UNKNOWN,
            *(fetch or _NO_FETCH),
        )  # fmt: skip
        figures[At.WAITED] += waited
        figures[At.LAST] = got
        if not place:
            figures[At.FIRST] = figures[At.FIRST] or asked
            figures[At.BEGAN] += waited
        figures[At.TIMED] += 1
        figures[At.TURNS] = number + 1  # at last: whoever reads meanwhile counts whole ones
        return number

    def left(self, number: int, when: int | None) -> None:
        """Write when the loop came back from a turn; None if another loader was asked meanwhile."""
        figures, row = self.figures, len(Totals._fields) + number % ROWS * _WIDTH
        if figures[row] != number:
            return  # forgotten
        if when is None:
            figures[row + At.LEFT] = UNKNOWN
        else:
            figures[row + At.LEFT] = when
            figures[At.WORKED] += when - figures[row + At.GOT]

    def skipped(self, turns: int, waited: float, worked: float) -> None:
        """Count turns that were not timed, with an estimate of their times in nanoseconds."""
        self.figures[At.WAITED] += waited
        self.figures[At.WORKED] += worked
        self.figures[At.TURNS] += turns

    def amend(self, number: float, field: int, value: float) -> None:
        """Write one figure of a turn that was not known at once, if it is still remembered."""
        row = len(Totals._fields) + int(number) % ROWS * _WIDTH
        if self.figures[row] == number:
            self.figures[row + field] = value


@dataclass(frozen=True)
class Seen:
    """What was written down of a loader in one process."""

    about: Mapping[str, Any]
    totals: Totals
    turns: list[Turn]  # the last ones, in order

    @property
    def rank(self) -> int:
        """Which rank it was."""
        return int(self.about["rank"])


def read(path: Path) -> Seen:
    """Read a record, also while it is being written."""
    content = path.read_bytes()
    totals = Totals(*_TOTALS.unpack_from(content, ABOUT))
    rows = _ROW.iter_unpack(content[_RING:])
    turns = sorted(
        turn for turn in map(Turn._make, rows) if turn.got and turn.number < totals.turns
    )
    return Seen(json.loads(content[:ABOUT]), totals, turns)


def read_all(folder: Path) -> list[Seen]:
    """Read all records in `folder`, by rank, and of a rank in the order in which they began."""
    seen = [read(path) for path in folder.glob(f"*{ENDING}")]
    return sorted((one for one in seen if one.totals.turns), key=lambda s: (s.rank, s.totals.first))
