"""Exercise 06.1: a format for each of four cases, checked by requests and bytes."""

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
MANY = 1_000_000  # events in the file from which one is displayed
BATCH = 256  # events per batch when all are read in order
TWICE = 2  # times as many requests or bytes as a good choice are too many


class ReadCost(NamedTuple):
    """Requests to the storage, and bytes."""

    requests: int  # including opens and look-ups, since each is a round trip
    bytes_read: int

    def __str__(self) -> str:
        return f"{plural(self.requests, 'request')} for {self.bytes_read / 1e6:,.2f} MB"


class FormatCase(NamedTuple):
    """A way to read events, and a format that is good for it."""

    name: str
    read: Callable[[str, Events], Any]
    good: str
    because: str  # why other formats are worse; the key "" explains large units
    unit: str  # what reads together in a good format


@exercise("06.1", title="A format for each case", seconds=60)
def format_for_each_case(training: str, histogram: str, display: str, one_pass: str) -> Verdict:
    """Check the names of four formats by reading from them."""
    chosen = dict(zip(CASES, (training, histogram, display, one_pass), strict=True))
    for key, said in chosen.items():
        name = chosen[key] = said.strip().lower() if isinstance(said, str) else said
        expect(
            name in FORMATS,
            f"{name!r} is not one of the formats.",
            f"Choose one of {', '.join(FORMATS)}.",
        )
        case, cost, good = CASES[key], read_cost(key, name), read_cost(key, CASES[key].good)
        expect(
            cost.requests < TWICE * good.requests and cost.bytes_read < TWICE * good.bytes_read,
            f"{case.name}: {name} takes {cost}, but {good} are enough. "
            f"{case.because or UNITS[name]}",
            f"Choose a format whose unit {case.unit}.",
        )
    found = ". ".join(f"{case.name}: {read_cost(key, chosen[key])}" for key, case in CASES.items())
    return right(f"{found}. No format is good for all four. The way you read decides.")


@cache
def read_cost(case: str, name: str) -> ReadCost:
    """Count the requests and bytes of a case with the format `name`, whose files are open."""
    folder = _folder()
    storage = counting_storage(folder)
    dataset = open_events(folder, name, fs=storage)
    dataset[0]
    storage.reset_counters()
    CASES[case].read(name, dataset)
    counted = storage.counters()
    return ReadCost(counted.requests + counted.opens + counted.lookups, counted.bytes_read)


@cache
def _folder() -> Path:
    """Return a temporary folder with some events in all formats."""
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
    """Read single events. In a file of millions, no two events of a batch share a unit."""
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
    if name != "sqlite":  # the others have no index, so they search a table of all ids
        dataset.fs.cat_file(f"{dataset.folder}/ids.npy")
    dataset[len(dataset) // 2]


def _in_order(_name: str, dataset: Events) -> None:
    for first in range(0, len(dataset), BATCH):
        dataset.__getitems__(range(first, min(first + BATCH, len(dataset))))


_GROUP = "Its unit has hundreds of events, and all are read to get one of them."
UNITS = {
    "npz": "Each event costs an open, and one server handles the opens of the whole cluster.",
    "sqlite": "It reads one small page after another, and each is a round trip.",
    **dict.fromkeys(("npy", "hdf5", "tar", "parquet", "root"), _GROUP),
}
_COLUMNS = (
    "The charge of a pulse is stored between its time and its sensor, so all four columns are read "
    "to get one of them."
)
_IDS = "It has no index of ids. To find the event, the ids of a million events are read first."
CASES = {
    key: FormatCase(*case)
    for key, case in {
        "training": ("Training on random events", _some_events, "npy", "", "is one event"),
        "histogram": (
            "A histogram of all charges",
            all_charges,
            "parquet",
            _COLUMNS,
            "is a column",
        ),
        "display": ("One event by its id", _one_by_id, "sqlite", _IDS, "is found by a tree of ids"),
        "one_pass": ("One pass over everything", _in_order, "tar", "", "is long, in one file"),
    }.items()
}
