"""Check of notebook 06: a format for each of four cases, judged by what is asked of the storage."""

import atexit
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from course_utils.hardware.storage import counting_storage
from course_utils.loading.events import FORMATS as ALL_FORMATS
from course_utils.loading.events import EventArrays, Events, open_events
from course_utils.teaching.exercise import Verdict, exercise, expect, right
from course_utils.teaching.notebook import data_path
from keepfed.formatting import plural

FORMATS = ("npz", "npy", "hdf5", "parquet", "sqlite", "tar", "root")
EVENTS = range(1000, 1512)  # of the small data set
MANY = 1_000_000  # events of the file out of which one is displayed
BATCH = 256  # events asked for at once by who reads in order
TWICE = 2  # the requests, or the bytes, of a good choice are too many


class Asked(NamedTuple):
    """What the storage was asked for."""

    requests: int  # opens and look-ups among them: each is a round trip
    bytes_read: int

    def __str__(self) -> str:
        return f"{plural(self.requests, 'request')} for {self.bytes_read / 1e6:,.2f} MB"


class FormatCase(NamedTuple):
    """Who asks for what."""

    name: str
    read: Callable[[str, Events], Any]
    good: str  # the format that others are compared with
    because: dict[str, str]  # why others are worse, by format; "": any other
    next_step: str


@exercise("06.1", title="A format for each case", seconds=180)
def format_for_each_case(training: str, histogram: str, display: str, one_pass: str) -> Verdict:
    """Judge the names of four formats by really reading from them."""
    chosen = dict(zip(CASES, (training, histogram, display, one_pass), strict=True))
    for key, name in chosen.items():
        expect(
            isinstance(name, str) and name in FORMATS,
            f"{name!r} is none of the formats here.",
            f"Choose one of {', '.join(FORMATS)}.",
        )
        case, asked = CASES[key], ask(key, name)
        good = ask(key, case.good)
        expect(
            asked.requests < TWICE * good.requests and asked.bytes_read < TWICE * good.bytes_read,
            f"{case.name}: {name} takes {asked}; {good} would do. "
            f"{case.because.get(name, case.because[''])}",
            case.next_step,
        )
    found = ". ".join(f"{case.name}: {ask(key, chosen[key])}" for key, case in CASES.items())
    return right(f"{found}. No format is good at all of them: it is the access that decides.")


@cache
def ask(case: str, name: str) -> Asked:
    """Read what a case wants from the format `name`, opened already, and count."""
    folder = _folder()
    storage = counting_storage(folder)
    dataset = open_events(folder, name, fs=storage)
    dataset[0]
    storage.reset_counters()
    CASES[case].read(name, dataset)
    counted = storage.counters()
    return Asked(counted.requests + counted.opens + counted.lookups, counted.bytes_read)


@cache
def _folder() -> Path:
    """Return a folder with some events in all formats; it goes when Python ends."""
    temporary = tempfile.TemporaryDirectory()
    atexit.register(temporary.cleanup)
    folder = Path(temporary.name)
    events = EventArrays.load(data_path("events", "S")).take(EVENTS)
    events.save(folder)
    for name in set(FORMATS) - {"npy"}:
        ALL_FORMATS[name].write(events, folder / ALL_FORMATS[name].entry)
    np.save(folder / "ids.npy", np.arange(MANY))
    return folder


def _some_events(_name: str, dataset: Events) -> None:
    """Read single events: in a file of millions no two of a batch share a unit."""
    for index in np.random.default_rng(6).permutation(np.arange(1, len(dataset)))[:32]:
        dataset[int(index)]


def all_charges(name: str, dataset: Events) -> NDArray[np.float32]:
    """Return the charges of all pulses, reading as little else as the format allows."""
    if name == "parquet":
        found = dataset.file.read(columns=["charge"], use_threads=False)["charge"]
    elif name == "root":
        found = np.concatenate(dataset.file["charge"].array(library="np"))
    elif name == "sqlite":
        found = np.ravel(dataset.file.execute("SELECT charge FROM pulses").fetchall())
    else:
        samples = dataset.__getitems__(range(len(dataset)))
        found = np.concatenate([sample["pulses"].numpy()[:, 1] for sample in samples])
    return np.asarray(found, np.float32)


def _one_by_id(name: str, dataset: Events) -> None:
    if name != "sqlite":  # the others have no index: a table of all ids tells where it is
        dataset.fs.cat_file(f"{dataset.folder}/ids.npy")
    dataset[len(dataset) // 2]


def _in_order(_name: str, dataset: Events) -> None:
    for first in range(0, len(dataset), BATCH):
        dataset.__getitems__(range(first, min(first + BATCH, len(dataset))))


_ROWS = (
    "The charge of a pulse lies between its time and its sensor, so all four columns are read for "
    "the sake of one."
)
CASES = {
    "training": FormatCase(
        "Training on random events",
        _some_events,
        "npy",
        {
            "npz": "Each event is an open more: the server that knows where files are serves the "
            "whole cluster.",
            "parquet": "A row group is read, and decoded, for one of its 256 events.",
            "root": "For each column a basket is read, with hundreds of events that nobody asked "
            "for.",
            "": "Its pages are small: an event is a walk down the tree and along the leaves, one "
            "request after the other.",
        },
        "Take a format whose unit is an event, in one large file.",
    ),
    "histogram": FormatCase(
        "A histogram of all charges",
        all_charges,
        "parquet",
        {"sqlite": f"A table in SQLite lies row by row, in small pages. {_ROWS}", "": _ROWS},
        "Take a format that lies column by column.",
    ),
    "display": FormatCase(
        "One event by its id",
        _one_by_id,
        "sqlite",
        {
            "": "It has no index of ids, at most one of positions: to find the event, a table with "
            "the ids of a million events is read first."
        },
        "Take a format that finds a row by a tree of pages.",
    ),
    "one_pass": FormatCase(
        "One pass over everything",
        _in_order,
        "tar",
        {
            "npz": "Two round trips for each event, and each waits a tenth of a second.",
            "sqlite": "It reads page after page, and each is a round trip.",
            "": "Each piece that is read is small, and each is a round trip.",
        },
        "Take a format that comes in few long pieces.",
    ),
}
