"""Exercise 06.3: ragged events in shards, checked by what comes back, and by requests and bytes."""

import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.exercises.judging.compare import Slip, compare
from course_utils.exercises.judging.probes import process_unchanged
from course_utils.hardware.storage import SlowFileSystem, counting_storage
from course_utils.teaching.exercise import (
    Verdict,
    exercise,
    expect,
    expect_in_a_file,
    refuse,
    right,
)
from course_utils.teaching.notebook import explain
from keepfed.formatting import plural

PER_SHARD = 100  # events, as the exercise says
MOST, SPARE = 2, 1024  # reads and opens per event, and bytes besides its own
MANY = 10_001  # events in 101 shards
# bytes before the second event: too many for float32, which counts them in sixteens
LARGE = 2**27 + 16

Pulses = NDArray[np.float32]
Write = Callable[[Sequence[Pulses], str], object]
Read = Callable[[Any, str, int], Any]

SIZES = (
    [3, 0, 5],
    [0],
    [1 + 7 * (i % 5) for i in range(PER_SHARD)],
    [0, *([4, 0, 9] * 66), 2, 0],  # two shards and one event; first and last are empty
    # a number of pulses, and offsets after it, that do not fit into 16 bits
    [70_000 if i == 120 else (13 * i) % 40 for i in range(PER_SHARD + 50)],
    [1] * MANY,  # in a sorted list of names, 100 comes before 11
)


SLIPS = (
    Slip(
        lambda _, got, __: got["too many"],
        "Event {case} takes {got[too many]}. One or two reads, at most two opens, no look-up and "
        f"{SPARE:,} bytes besides its own are allowed. Each request is a round trip.",
        "Read both offsets with one read(16), seek, and read the pulses up to the last byte. "
        "np.load, pickle and tarfile take many small reads, and fs.ls is a look-up.",
    ),
    Slip(
        lambda _, got, wanted: (
            got["event"] == wanted["event"] and got["values"] != wanted["values"]
        ),
        "Event {case} has the right shape, but wrong numbers. They were rounded, or they belong to "
        "another event, another order or an earlier write.",
        'Write tobytes() of float32 to a file with a number in its name, opened with "wb". '
        "Offsets count bytes from its start, and need int64.",
    ),
)


@exercise("06.3", title="Ragged shards with offsets", seconds=60)
def ragged_shards(write_shards: Write, read_event: Read) -> Verdict:
    """Check a format by what comes back, and by the requests to the storage."""
    for function in write_shards, read_event:
        expect(
            callable(function),
            "The check needs your two functions.",
            "Pass them without parentheses: write_shards, then read_event.",
        )
        expect_in_a_file(function)
    for sizes in SIZES:
        events = _events(sizes)
        with tempfile.TemporaryDirectory() as room:
            with process_unchanged(events):
                _check(write_shards, read_event, room, events)
            with suppress(FileExistsError):  # refusing a second write is safe, too
                _check(write_shards, read_event, room, [-event for event in events])
    with tempfile.TemporaryDirectory() as room:
        events = [np.zeros((LARGE // 16, 4), np.float32), np.ones((2, 4), np.float32)]
        _check(write_shards, read_event, room, events, [1])
    return right(
        "Every event comes back bit for bit, even empty ones and the last one of a shard, with at "
        "most two reads of little more than its own bytes."
    )


def _events(sizes: Sequence[int]) -> list[Pulses]:
    """Return events of these lengths. Some are views with gaps, as slices are."""
    rng = np.random.default_rng(len(sizes))
    events = []
    for index, size in enumerate(sizes):
        table = rng.normal(size=(2 * size, 4)).astype(np.float32)
        if size > 1:  # the first and the last row can be drawn like all others
            table[0], table[size - 1], table[2 * size - 2] = (np.nan, -0.0, 1, 2), 0, 0
        events.append(table[::2] if index % 3 == 1 else np.asfortranarray(table[:size]))
    return events


def _check(
    write: Write,
    read: Read,
    room: str,
    events: Sequence[Pulses],
    indices: Iterable[int] | None = None,
) -> None:
    """Write events to a folder, and read them in random order as a new process does."""
    folder = Path(room, f"shards_{len(events)}")  # `fs` knows it by its name only
    folder.mkdir(exist_ok=True)
    write(events, str(folder))
    files = sum(path.is_file() for path in folder.rglob("*"))
    shards = -(-len(events) // PER_SHARD)
    expect(
        shards <= files <= 2 * shards + 2,
        f"{plural(len(events), 'event')} became {plural(files, 'file')}, not "
        f"{plural(shards, 'shard')}. Each small file costs an open, and a single large file cannot "
        "be divided among workers.",
        f"Start a new file after every {PER_SHARD} events. The last file may be short.",
    )
    if indices is None:
        indices = np.random.default_rng(0).permutation(len(events))[:300].tolist()
    storage = counting_storage(room)
    afresh = run_path(str(sys.modules[read.__module__].__file__))[read.__name__]
    compare(
        partial(_read, afresh, storage, folder.name, events),
        lambda index: _facts(events[index]),
        indices,
        *SLIPS,
        show=lambda index: f"event {index} of {len(events)}",
    )


def _read(
    read: Read, storage: SlowFileSystem, folder: str, events: Sequence[Pulses], index: int
) -> dict[str, Any]:
    opened: list[Any] = []
    storage.reset_counters()

    def open_file(*args: Any, **options: Any) -> Any:
        opened.append(SlowFileSystem.open(storage, *args, **options))
        return opened[-1]

    storage.open = open_file
    try:
        found = read(storage, folder, index)
    except Exception as error:
        refuse(
            f"Event {index} of {len(events)} cannot be read: {explain(error)}.",
            "A new process has only the files, and opens them with fs.open(path). n events have "
            "n + 1 offsets.",
        )
    counted, size = storage.counters(), events[index].nbytes
    reads, opens, look_ups = counted.requests, counted.opens, counted.lookups
    spare = max(0, counted.bytes_read - size)
    counts = [plural(reads, "read"), plural(opens, "open"), plural(look_ups, "look-up")]
    counts.append(f"{spare:,} bytes besides its own")
    many = max(reads, opens) > MOST or look_ups or spare > SPARE or (size and not reads)
    return {
        **_facts(found),
        "too many": ", ".join(counts) * bool(many),
        "files left open": sum(not file.closed for file in opened),
    }


def _facts(found: Any) -> dict[str, Any]:
    kind = f"{type(found).__name__} of shape {np.shape(found)}"
    return {
        "event": f"{kind} and {getattr(found, 'dtype', 'no dtype')}",
        "values": found.tobytes() if isinstance(found, np.ndarray) else b"",
        "too many": "",
        "files left open": 0,
    }
