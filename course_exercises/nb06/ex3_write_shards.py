"""Check of notebook 06: ragged events in shards, judged by round trip, requests and bytes."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from course_utils.hardware.storage import SlowFileSystem, counting_storage
from course_utils.teaching.exercise import Verdict, exercise, expect, expect_in_a_file, right
from keepfed.formatting import plural

PER_SHARD = 100  # events, as the exercise says
READS, SPARE = 2, 1024  # requests for an event, and bytes beside its own

Pulses = NDArray[np.float32]
Write = Callable[[Sequence[Pulses], str], object]
Read = Callable[[Any, str, int], Any]


@exercise("06.3", title="Ragged shards with offsets", seconds=120)
def ragged_shards(write_shards: Write, read_event: Read) -> Verdict:
    """Judge a format by what is written, what comes back, and what the storage is asked for."""
    for function in write_shards, read_event:
        expect(
            callable(function),
            "The check needs your two functions.",
            "Hand them over without parentheses: write_shards, then read_event.",
        )
        expect_in_a_file(function)
    costs = []
    for sizes in _SIZES:
        with tempfile.TemporaryDirectory() as room:
            events, folder = _events(sizes), f"shards_{len(sizes)}"  # so `fs` calls it
            here = Path(room, folder)
            here.mkdir()
            given = [event.copy(order="K") for event in events]
            write_shards(given, str(here))
            expect(
                [event.tobytes() for event in given] == [event.tobytes() for event in events],
                "write_shards changes what it was given: the list is shorter, or in another order, "
                "or an event has other numbers. Whoever wrote them wants to go on with them.",
                "Take slices, events[first : first + PER_SHARD], and make new arrays.",
            )
            _judge_files(here, events)
            storage = counting_storage(room)
            for index in sorted(range(len(events)), key=lambda index: index * 7919 % 1009):
                costs.append(_judge_event(read_event, storage, folder, events, index))
            _judge_memory(_afresh(read_event), storage, folder, events)
            _judge_again(write_shards, _afresh(read_event), here, events)
    _judge_names(write_shards, read_event)
    requests, beside = (sorted(cost) for cost in zip(*costs, strict=True))
    more = beside[len(beside) // 2]
    return right(
        f"Every event comes back the same, the empty and the last ones too, with at most "
        f"{plural(requests[-1], 'request')}, and mostly {plural(more, 'byte')} beside its own."
        + (" Its two offsets are 16: the others need not be read." if more > 100 else "")
    )


_SIZES = (
    [1 + 7 * (i % 5) for i in range(PER_SHARD)],
    [3, 0, 5],
    [0],
    [0, *([4, 0, 9] * 66), 2, 0],  # two shards and one event, both ends empty
    # a number of pulses, and offsets behind it, that do not fit into 16 bits
    [70_000 if i == 120 else (13 * i) % 40 for i in range(PER_SHARD + 50)],
)


def _events(sizes: Sequence[int]) -> list[Pulses]:
    """Return events of these lengths; some of them are views with gaps, as slices are."""
    rng = np.random.default_rng(len(sizes))
    events = []
    for index, size in enumerate(sizes):
        table = rng.normal(size=(2 * size, 4)).astype(np.float32)
        if size > 1:  # the first row and the last are as good as the others
            table[0], table[size - 1], table[2 * size - 2] = (np.nan, -0.0, 1, 2), 0, 0
        events.append(table[::2] if index % 3 == 1 else np.asfortranarray(table[:size]))
    return events


def _judge_files(folder: Path, events: Sequence[Pulses]) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    shards = -(-len(events) // PER_SHARD)
    expect(
        files or len(events) >= PER_SHARD,
        f"write_shards has written nothing of {plural(len(events), 'event')}. They are fewer than "
        f"{PER_SHARD}, and are to be in a shard of their own all the same.",
        "Let the last shard be short: range(0, len(events), PER_SHARD), and slices end by "
        "themselves.",
    )
    expect(
        files,
        "write_shards has left no file in the folder that it was given.",
        "Write to f'{folder}/...', and close the file: with open(...).",
    )
    expect(
        len(files) <= 2 * shards + 2,
        f"{len(files)} files for {len(events)} events. Small files are what shards are to avoid: "
        "each costs an open.",
        f"Put {PER_SHARD} events into a file, one behind the other.",
    )
    expect(
        len(files) >= shards,
        f"{plural(len(files), 'file')} for {len(events)} events; {PER_SHARD} to a shard is asked "
        "for. Workers and ranks divide shards among them, and one cannot be divided.",
        f"Begin a new file after every {PER_SHARD} events.",
    )


def _judge_event(
    read: Read, storage: SlowFileSystem, folder: str, events: Sequence[Pulses], index: int
) -> tuple[int, int]:
    """Return how many requests the event took, and how many bytes beside its own."""
    storage.reset_counters()
    try:
        found = read(storage, folder, index)
    except KeyError as error:
        expect(
            False,
            f"Event {index} is looked for in memory (KeyError: {error}), and is not there: whoever "
            "reads it has another name for the folder, and mostly another Python.",
            "Write to files what read_event needs, and read it from there.",
        )
    except FileNotFoundError as error:
        expect(
            not Path(storage.root, error.filename or ".").exists(),
            f"Event {index} is opened past `fs`, on the disk of this machine. On a cluster or in a "
            "cloud there is only `fs`.",
            "Open files with fs.open(path).",
        )
        raise
    except (IndexError, ValueError, EOFError) as error:
        expect(
            len(events[index]),
            f"Event {index}, which has no pulses, raises {type(error).__name__}: {error}.",
            "Read nothing and return an array of the shape (0, 4).",
        )
        expect(
            (index + 1) % PER_SHARD and index != len(events) - 1,
            f"Event {index}, the last of its shard, raises {type(error).__name__}: {error}. n "
            "events have n + 1 offsets: the last tells where the last one ends.",
            "Write an offset behind the last event too.",
        )
        raise
    counted = storage.counters()
    _judge_pulses(found, events[index], f"Event {index} of {len(events)}")
    expect(
        counted.requests or not len(events[index]),
        f"Event {index} came without a request to the storage: it was kept in memory.",
        "Read from what fs.open(path) returns.",
    )
    expect(
        counted.requests <= READS,
        f"Event {index} takes {counted.requests} requests; {READS} are allowed. "
        + (
            "np.load reads the head of a file in several small pieces, unpickling reads bit by "
            "bit, and tarfile goes from member to member."
            if counted.requests > READS + 1
            else "Where it begins and where it ends stand side by side in the file."
        ),
        "Read both offsets with one read(16) of int64, seek, and read the pulses with another.",
    )
    beside = counted.bytes_read - events[index].nbytes
    expect(
        beside <= SPARE,
        f"For event {index}, {events[index].nbytes:,} bytes long, {counted.bytes_read:,} are read: "
        "its neighbours, padding or the whole shard come along. One event would cost as much as "
        "many.",
        "Seek to the first byte of the event, and read up to its last.",
    )
    return counted.requests, beside


def _judge_pulses(found: Any, wanted: Pulses, name: str) -> None:
    expect(
        isinstance(found, np.ndarray),
        f"{name} comes as {type(found).__name__}.",
        "Return an array: np.frombuffer(content, np.float32).reshape(-1, 4).",
    )
    expect(
        found.dtype == wanted.dtype,
        f"{name} comes as {found.dtype}, and {wanted.dtype} went in.",
        "Write and read float32: tobytes() writes what is there.",
    )
    expect(
        found.shape == wanted.shape,
        f"{name} has the shape {found.shape} instead of {wanted.shape}."
        + (" Padding and neighbours are no pulses." if found.size > wanted.size else ""),
        "Offsets tell where an event begins and ends; reshape(-1, 4) makes rows, even of nothing.",
    )
    same = found.tobytes() == wanted.tobytes()
    expect(
        same or not np.allclose(np.nan_to_num(found), np.nan_to_num(wanted), rtol=0.01),
        f"{name} has nearly the same numbers: they were rounded on the way, or NaN or -0.0 became "
        "another number.",
        "Write float32 as it is, bit for bit.",
    )
    expect(
        same,
        f"{name} has the right shape and other numbers: those of another event, or in another "
        "order.",
        "Seek to offset in bytes, behind the head; a row has 16 of them. tobytes() writes row by "
        "row, whatever the order in memory.",
    )


def _judge_memory(
    read: Read, storage: SlowFileSystem, folder: str, events: Sequence[Pulses]
) -> None:
    """Judge a reader that has seen nothing of the writing, as in a worker or a day later."""
    index = len(events) // 2
    try:
        found = read(storage, folder, index)
    except (NameError, KeyError, IndexError, TypeError, AttributeError) as error:
        expect(
            False,
            f"A fresh Python, such as a worker, cannot read event {index} "
            f"({type(error).__name__}: {error}): write_shards left in memory what belongs into the "
            "files.",
            "Write the offsets to a file, and read them from there.",
        )
    _judge_pulses(found, events[index], f"In a fresh Python event {index}")


def _judge_again(write: Write, read: Read, here: Path, events: Sequence[Pulses]) -> None:
    """Write other numbers to the same folder, as whoever runs the cell again does."""
    with suppress(FileExistsError):  # to refuse is safe, too
        write([-event for event in events], str(here))
        storage = counting_storage(here.parent)
        for index, event in enumerate(events):
            expect(
                read(storage, here.name, index).tobytes() == (-event).tobytes(),
                f"Written a second time to the same folder, event {index} does not come back as it "
                "was written last: old bytes are still there.",
                'Begin each file anew: open(path, "wb"). "ab" appends to what lies there.',
            )


def _judge_names(write: Write, read: Read) -> None:
    """Judge which of 101 shards is read, by the first event of each."""
    events = list(np.arange(400 * PER_SHARD + 4, dtype=np.float32).reshape(-1, 1, 4))
    with tempfile.TemporaryDirectory() as room:
        here = Path(room, "many_shards")
        here.mkdir()
        write(events, str(here))
        storage = counting_storage(room)
        for index in range(0, len(events), PER_SHARD):
            expect(
                read(storage, here.name, index).tobytes() == events[index].tobytes(),
                f"With 101 shards event {index} comes out of another one. In a sorted list of "
                "names 10 stands before 2, and 100 before 11.",
                'Make the name of a file of the number of its shard: f"{shard:05d}.bin".',
            )


def _afresh(function: Read) -> Read:
    """Return the same function out of a second, untouched copy of its module."""
    copy = run_path(str(sys.modules[function.__module__].__file__))
    found: Read = copy[function.__name__]
    return found
